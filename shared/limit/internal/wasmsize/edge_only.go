//go:build edge

package main

func useRest() {}
