// Package alerts holds the Prometheus alerts of origins and edges, weir.rules.yaml, with their tests.
package alerts
