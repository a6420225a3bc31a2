// Package evaluate plays the unit tests of the alerts with Prometheus' own parser and engine. It is a module of its own:
// Prometheus is no dependency of Weir's.
package evaluate
