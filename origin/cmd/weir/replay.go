package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirproject/weir/origin/internal/replay"
	"github.com/weirproject/weir/origin/internal/rules"
)

func init() { register(newReplayCommand) }

// replayFlags are what the command line says.
type replayFlags struct {
	rulesFile, format string
	decisions, strict bool
	showBad, top      int
	memory            int64
}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Try rules on a recorded trace or an access log, in virtual time",
		Long: `Try rules on a recorded trace or an access log, in virtual time. TRACE is a file, plain or gzip, or - for standard input.

Formats, of which the first line tells without --format:
  jsonl     a JSON object a line, {"t": µs since the epoch or RFC 3339, "key", "user", "tenant", "tier", "address", "method",
            "path", "host", "headers": [names], "cost"}: all but t optional, key the id of a key, other fields passed over
  common    host ident user [time] "request" status bytes
  combined  the same, then "referer" "user agent"
  envoy     Envoy's default text, its address the last of x-forwarded-for; or the JSON of Weir's Envoy or Istio's

Access logs hold no key and no tenant: to try a rule by those, write JSON lines. Their user, where there is one, is taken for
a verified user.

All rules of the file are tried, the edge's first: a call that the edge refuses does not reach the origin. Addresses that the
file's edge block denies or exempts are so here too. Not tried are penalties and the wider prefix of v6-outer.

The summary counts, for each rule, the calls that it was asked about (seen), and the most in any second of the trace's clock
(peak). What is neither admitted nor refused had room, but met a refusal of another rule, which charges nobody. Refused
counts of a shadow rule are what it would have refused.`,
		Example: `  weir replay --rules weir.rules.yaml access.log.gz
  weir replay --rules weir.rules.yaml --decisions trace.jsonl | jq 'select(.allowed | not)'
  zcat -f access.log.2.gz access.log.1 access.log | weir replay --rules weir.rules.yaml -`,
		Args: exactly("TRACE"),
		RunE: func(cmd *cobra.Command, args []string) error { return runReplay(cmd, f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rulesFile, "rules", "weir.rules.yaml", "rules file")
	flags.StringVar(&f.format, "format", "", "jsonl, common, combined or envoy (default: by the first line)")
	flags.BoolVar(&f.decisions, "decisions", false, "write each rule's decisions as JSON lines, in place of the summary")
	flags.BoolVar(&f.strict, "strict", false, "end at the first line that cannot be read")
	flags.IntVar(&f.showBad, "show-bad", 20, "lines that cannot be read to show; -1 for all")
	flags.IntVar(&f.top, "top", 5, "most refused principals to show for each rule; -1 for all that are known")
	flags.Int64Var(&f.memory, "memory", replay.DefaultMemory>>20, "MiB that counters may take")
	return cmd
}

func runReplay(cmd *cobra.Command, f replayFlags, name string) (err error) {
	release, err := rules.LoadModel(f.rulesFile)
	if err != nil {
		return exitError{2, fmt.Errorf("replay: %w", err)}
	}
	o := replay.Options{Strict: f.strict, Memory: f.memory << 20}
	if f.format != "" {
		if o.Format, err = replay.ParseFormat(f.format); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if f.memory < 1 || f.memory > 1<<20 {
		return fmt.Errorf("replay: memory %d: want 1 to %d MiB", f.memory, 1<<20)
	}
	stderr := cmd.ErrOrStderr()
	fmt.Fprint(stderr, toldOfModel(f.rulesFile, release))
	trace, size, err := openTrace(cmd, name)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer trace.Close()
	var reader io.Reader = trace
	clear := func() {}
	if isTerminal(stderr) && !(f.decisions && isTerminal(cmd.OutOrStdout())) { // a bar between decisions helps nobody
		p := replay.NewProgress(trace, size, stderr, time.Now)
		reader, o.Step, clear = p, p.Step, p.Clear
	}
	if f.decisions {
		o.Decisions = cmd.OutOrStdout()
	}
	shown := 0
	o.Bad = func(line int64, reason error) {
		if f.strict {
			return // the error of the command tells it
		}
		if shown++; f.showBad < 0 || shown <= f.showBad {
			clear()
			fmt.Fprintf(stderr, "%s:%d: %v\n", name, line, reason)
		}
	}
	summary, err := replay.Run(cmd.Context(), release.Set, reader, o)
	clear()
	if hidden := shown - f.showBad; f.showBad >= 0 && hidden > 0 {
		text := "and " + count(hidden, "more line") + " that could not be read"
		if f.showBad == 0 {
			text = count(hidden, "line") + " could not be read"
		}
		fmt.Fprintf(stderr, "%s: %s (--show-bad -1 shows all)\n", name, text)
	}
	if bad, strict := errors.AsType[replay.BadLine](err); strict {
		return fmt.Errorf("replay: %s:%d: %w", name, bad.Line, bad.Reason)
	}
	if summary.Calls > 0 && !f.decisions {
		err = errors.Join(err, summary.Print(cmd.OutOrStdout(), f.top))
	}
	switch {
	case err != nil:
		return fmt.Errorf("replay: %s: %w", name, err)
	case summary.Calls == 0:
		hint := ""
		if f.format == "" && summary.Format != "" {
			hint = ", which its first line was taken for: --format names another"
		}
		return fmt.Errorf("replay: %s: no line of it could be read as %s%s", name, formatName(summary.Format), hint)
	}
	return nil
}

func formatName(f replay.Format) string {
	if f == "" {
		return "a trace: it is empty"
	}
	return string(f)
}

// openTrace opens a trace, with its size where that is known.
func openTrace(cmd *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	about, err := file.Stat()
	if err == nil && about.IsDir() {
		err = fmt.Errorf("%s is a folder", name)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, about.Size(), nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
