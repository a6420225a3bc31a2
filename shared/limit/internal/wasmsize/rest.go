//go:build !all

package main

func useRest() {}
