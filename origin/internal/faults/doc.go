// Package faults plays what can go wrong between an origin and its store, on real servers.
package faults
