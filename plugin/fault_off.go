//go:build !weirfault

package main

import "github.com/weirproject/weir/edge"

// fault is nothing in the module that ships; see the weirfault build.
type fault struct{}

func (*fault) start([]byte) bool                  { return true }
func (*fault) slots(shared edge.Slots) edge.Slots { return shared }
func (*fault) request()                           {}
