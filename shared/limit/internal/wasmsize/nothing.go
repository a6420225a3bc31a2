//go:build !decide && !edge && !all

package main

func use() {}
