//go:build race

package memory

func init() { raced = true }
