// Package numbers shows the figures that the design promises of the origin, next to those measured.
//
// They are counted, not timed: a real Valkey runs the commands of made-up seconds, however long they take. `make numbers`
// counts them all; the tests alone, a share that gives the same ratios.
package numbers
