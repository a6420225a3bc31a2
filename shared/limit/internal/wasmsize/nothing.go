//go:build !edge && !all

package main

func useEdge() {}
func useRest() {}
