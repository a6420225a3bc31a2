// Command wasmsize does nothing, but by its build tag it holds no part of package limit, what it takes to decide by all
// seven algorithms, what the edge uses, or all of it: the difference in size is what the package adds to a module.
package main

func main() {
	use()
	useRest()
}
