package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestEnvoyConfigWritesWhatItsFlagsSay(t *testing.T) {
	const origin = "name: weir_origin"
	for _, c := range []struct {
		flags      string
		want, none string // in the bootstrap
		fault      string
	}{
		{flags: "", want: "max_active_downstream_connections: 50000 ", none: "weir_control"},
		{flags: "", want: "request_timeout: 300.000000000s ", none: "fixed_heap"},
		{flags: "", want: origin, none: "healthz"},
		{flags: "", want: origin, none: "transport_sockets.tls"},
		{flags: "--control c.internal:8084", want: "name: weir_control"},
		{flags: "--health 0.0.0.0:8086", want: "exact: /healthz"},
		{flags: "--certificate certificate.json", want: "alpn_protocols: [h2, http/1.1]"},
		{flags: "--max-heap 2GiB", want: "max_heap_size_bytes: 2147483648 "},
		{flags: "--max-heap 128MiB", want: "max_heap_size_bytes: 134217728 "},
		{flags: "--stream-idle 90s --request-timeout 1h", want: "stream_idle_timeout: 90.000000000s\n"},
		{flags: "--max-connections 7", want: "max_active_downstream_connections: 7 "},
		{flags: "--max-heap 100", fault: "whole number of MiB or GiB"},
		{flags: "--max-heap 9999999999GiB", fault: "whole number of MiB or GiB"},
		{flags: "--max-heap 1MiB", fault: "128MiB to 1024GiB"},
		{flags: "--max-connections 0", fault: "more than zero"},
		{flags: "--request-timeout 0", fault: "more than zero"},
		{flags: "--stream-idle 0s", fault: "more than zero"},
	} {
		var out bytes.Buffer
		cmd := newEnvoyConfigCommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"--filter", "filter.json"}, strings.Fields(c.flags)...))
		err := cmd.Execute()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%q: %v, want %q", c.flags, err, c.fault)
			}
			continue
		}
		if err != nil || !strings.Contains(out.String(), c.want) || c.none != "" && strings.Contains(out.String(), c.none) {
			t.Errorf("%q: %v, want %q and no %q", c.flags, err, c.want, c.none)
		}
	}
}
