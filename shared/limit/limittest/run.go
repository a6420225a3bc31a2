package limittest

import (
	"fmt"
	"io/fs"
)

// ReadAll reads every vector file of a folder. It is an error if an algorithm of [Algorithms] has no case.
func ReadAll(folder fs.FS) (map[string][]Case, error) {
	names, err := fs.Glob(folder, "*.txt")
	if err != nil {
		return nil, err
	}
	all, seen := map[string][]Case{}, map[string]bool{}
	for _, name := range names {
		file, err := folder.Open(name)
		if err != nil {
			return nil, err
		}
		cases, err := Read(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range cases {
			seen[c.Algorithm] = true
		}
		all[name] = cases
	}
	for _, algorithm := range Algorithms {
		if !seen[algorithm] {
			return nil, fmt.Errorf("no vectors for %s in %d files", algorithm, len(names))
		}
	}
	return all, nil
}

// Run plays cases on package limit as it is compiled into the caller, and counts them. It returns a line for each answer
// that is not the one wanted.
func Run(files map[string][]Case) (cases, calls int, wrong []string) {
	for name, file := range files {
		for _, c := range file {
			if len(c.Steps) == 0 {
				wrong = append(wrong, fmt.Sprintf("%s:%d: case %q has no steps", name, c.Line, c.Name))
				continue
			}
			counter := New(c.Algorithm, c.Steps[0].Limit, c.Steps[0].Now, c.Offset)
			if counter == nil {
				wrong = append(wrong, fmt.Sprintf("%s:%d: case %q: no algorithm %q", name, c.Line, c.Name, c.Algorithm))
				continue
			}
			cases++
			for _, step := range c.Steps {
				calls++
				got := step.Want
				switch step.Op {
				case Take:
					got = counter.Take(step.Limit, step.Now, step.Cost)
				case Peek:
					got = counter.Peek(step.Limit, step.Now, step.Cost)
				case Refund:
					counter.Refund(step.Limit, step.Now, step.Cost, step.Charged)
				}
				if got != step.Want {
					wrong = append(wrong, fmt.Sprintf("%s:%d: case %q:\n got %+v\nwant %+v", name, step.Line, c.Name, got, step.Want))
				}
			}
		}
	}
	return cases, calls, wrong
}
