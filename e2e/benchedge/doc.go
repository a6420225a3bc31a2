// Package benchedge measures what a request costs an Envoy worker, with Weir's filter and without.
package benchedge
