// Package peers measures the memory store beside other limiters that keep counters in memory.
//
// It is a module of its own, so that they are no dependencies of Weir's.
package peers
