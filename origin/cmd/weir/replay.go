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

A JSON line is {"t": µs since the epoch or RFC 3339, "key", "user", "tenant", "tier", "address", "method", "path", "host",
"headers": [names], "cost"}, all but t optional. Without --format the first line tells what the trace is.

All rules of the file are tried, the edge's first: a call that the edge refuses does not reach the origin. Not tried are
penalties and the wider prefix of v6-outer.`,
		Example: `  weir replay --rules weir.rules.yaml access.log.gz
  weir replay --rules weir.rules.yaml --decisions trace.jsonl | jq 'select(.allowed | not)'`,
		Args: exactly("TRACE"),
		RunE: func(cmd *cobra.Command, args []string) error { return runReplay(cmd, f, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rulesFile, "rules", "weir.rules.yaml", "rules file")
	flags.StringVar(&f.format, "format", "", "jsonl, common, combined or envoy (default: by the first line)")
	flags.BoolVar(&f.decisions, "decisions", false, "write each rule's decisions as JSON lines, in place of the summary")
	flags.BoolVar(&f.strict, "strict", false, "end at the first line that cannot be read")
	flags.IntVar(&f.showBad, "show-bad", 20, "lines that cannot be read to show; -1 for all")
	flags.IntVar(&f.top, "top", 5, "most refused principals to show for each rule")
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
	for _, w := range release.Warnings {
		fmt.Fprintf(stderr, "warning: %v\n", w)
	}
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
		if shown++; f.showBad < 0 || shown <= f.showBad {
			clear()
			fmt.Fprintf(stderr, "%s:%d: %v\n", name, line, reason)
		}
	}
	summary, err := replay.Run(cmd.Context(), release.Set, reader, o)
	clear()
	if hidden := shown - f.showBad; f.showBad >= 0 && hidden > 0 {
		fmt.Fprintf(stderr, "%s: and %d more lines that could not be read (--show-bad -1 shows all)\n", name, hidden)
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
		return fmt.Errorf("replay: %s: no line of it could be read as %s", name, formatName(summary.Format))
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
