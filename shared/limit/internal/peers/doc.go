// Package peers measures package limit beside other limiters.
//
// It is a module of its own, so that they are no dependencies of Weir's.
package peers
