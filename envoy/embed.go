// Package envoy holds the templates of Envoy's configuration.
package envoy

import _ "embed"

// Bootstrap is the bootstrap of an Envoy at the edge, a text/template over origin/internal/envoyconfig.Edge.
//
//go:embed edge.yaml.tmpl
var Bootstrap string

// Filter is the file that Envoy's extension discovery reads the Wasm filter from, a text/template over
// origin/internal/envoyconfig.Filter.
//
//go:embed filter.json.tmpl
var Filter string

// Certificate is the file that Envoy's secret discovery reads the listener's certificate from, a text/template over
// origin/internal/envoyconfig.Certificate.
//
//go:embed certificate.json.tmpl
var Certificate string
