package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheStatesOfTheStoreArePrintedAsTheReadmeHasThem(t *testing.T) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetArgs([]string{"store", "states"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 || !bytes.Contains(readme, out.Bytes()) {
		t.Errorf("origin/README.md does not hold:\n%s", &out)
	}
}
