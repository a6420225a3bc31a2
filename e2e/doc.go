// Package e2e tests Weir from the outside: the built filter, real Envoy, the real origin and real Valkey.
package e2e
