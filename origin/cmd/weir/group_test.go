package main

import (
	"strings"
	"testing"
)

// A script whose command line has a slip in it must not take the help it gets for success.
func TestAWordThatNamesNoCommandFails(t *testing.T) {
	for line, want := range map[string]string{
		"key":                "key: want new",
		"key foo":            `key: "foo": want new`,
		"bundle inspct x":    `bundle: "inspct": want build or inspect`,
		"envoy foo":          `envoy: "foo": want config or filter`,
		"help nope":          `help: no command "nope"`,
		"help key nope":      `help: no command "key nope"`,
		"nope":               `unknown command "nope"`,
		"serve a --config b": `serve: "a" beside --config`,

		"replay":           "replay: TRACE is missing: want weir replay TRACE [flags]",
		"replay a b":       `replay: "b" is one too many: want weir replay TRACE [flags]`,
		"explain GET":      "explain: PATH or URL is missing: want weir explain METHOD PATH|URL [flags]",
		"bundle inspect":   "bundle inspect: FILE is missing",
		"bundle verify":    "bundle verify: FILE is missing",
		"bundle build":     "bundle build: --output is missing: `weir bundle build --help` lists the flags",
		"envoy filter":     "envoy filter: --bundle and --output are missing",
		"key new":          "key new: --id is missing",
		"envoy config x":   `envoy config: "x" is one too many`,
		"check-config a b": `check-config: "b" is one too many: want weir check-config [FILE] [flags]`,
		"explain --adress": "explain: unknown flag: --adress: `weir explain --help` lists the flags",
		"key new --x":      "key new: unknown flag: --x: `weir key new --help` lists the flags",
		"--x":              "unknown flag: --x: `weir --help` lists what there is",
	} {
		if _, _, err := invoke(t, newRootCommand(), strings.Fields(line)...); exitCode(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit code %d, %v; want %s", line, exitCode(err), err, want)
		}
	}
	for line, want := range map[string]string{"help key new": "weir key new [flags]", "help": "check-config", "": "check-config", "--version": build()} {
		out, _, err := invoke(t, newRootCommand(), strings.Fields(line)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v, printed %q; want %s", line, err, out, want)
		}
	}
}
