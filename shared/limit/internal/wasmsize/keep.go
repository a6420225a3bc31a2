//go:build decide || edge || all

package main

import "unsafe"

// keep makes the linker keep what the variables at these addresses hold.
//
//go:noinline
func keep(addresses ...unsafe.Pointer) {
	for _, a := range addresses {
		if a == nil {
			println("no address")
		}
	}
}
