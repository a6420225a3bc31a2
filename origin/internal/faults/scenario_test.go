package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Scenario is a file of scenarios/: README.md says what its fields mean.
type Scenario struct {
	Name     string        `yaml:"name"`
	Why      string        `yaml:"why"`
	Servers  string        `yaml:"servers"`
	Origins  int           `yaml:"origins"`
	Strategy string        `yaml:"strategy"`
	Deadline time.Duration `yaml:"deadline"`
	Before   []string      `yaml:"before"`
	Steps    []Step        `yaml:"steps"`
}

// Step has one of Fault, Calls, Spend, Reset and Recover.
type Step struct {
	Fault string `yaml:"fault"`

	Calls    time.Duration `yaml:"calls"`
	Answered string        `yaml:"answered"`
	Asked    *int          `yaml:"asked"`
	Loads    *int          `yaml:"loads"`

	Spend  string        `yaml:"spend"`
	Rule   string        `yaml:"rule"`
	Origin int           `yaml:"origin"`
	Times  int           `yaml:"times"`
	Pass   *int          `yaml:"pass"`
	Within time.Duration `yaml:"within"`

	Reset string `yaml:"reset"`

	Recover bool `yaml:"recover"`
}

// The kinds of servers, and how calls may be answered.
var (
	serverKinds = []string{"one", "stepping", "cluster", "replicated"}
	answers     = []string{byStore, byMode, either}
)

const (
	byStore = "by-store"
	byMode  = "by-mode"
	either  = "either"
)

// readScenarios reads a folder of scenarios strictly. All faults of all files come in one error.
func readScenarios(folder string) (all []Scenario, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s holds no scenario files (*.yaml): %w", folder, err)
	}
	var faults []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := parseScenario(text)
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); err == nil && s.Name != name {
			err = fmt.Errorf("name: %q, want the file's, %q", s.Name, name)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
		}
		all = append(all, s)
	}
	return all, errors.Join(faults...)
}

func parseScenario(text []byte) (Scenario, error) {
	s := Scenario{Servers: "one", Origins: 1, Deadline: time.Second}
	if err := yaml.UnmarshalWithOptions(text, &s, yaml.Strict()); err != nil {
		return s, err
	}
	var faults []error
	fault := func(format string, values ...any) { faults = append(faults, fmt.Errorf(format, values...)) }
	if s.Why == "" {
		fault("why: want a sentence")
	}
	if !slices.Contains(serverKinds, s.Servers) {
		fault("servers: %q, want one of %v", s.Servers, serverKinds)
	}
	if s.Origins < 1 || s.Origins > 3 {
		fault("origins: %d, want 1 to 3", s.Origins)
	}
	for _, f := range s.Before {
		if err := knownFault(f, s.Servers); err != nil {
			fault("before: %w", err)
		}
	}
	if len(s.Steps) == 0 {
		fault("steps: want some")
	}
	for i, step := range s.Steps {
		if err := step.check(s); err != nil {
			fault("step %d: %w", i+1, err)
		}
	}
	return s, errors.Join(faults...)
}

func (step Step) check(s Scenario) error {
	kinds := 0
	for _, is := range []bool{step.Fault != "", step.Calls != 0, step.Spend != "", step.Reset != "", step.Recover} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("want one of fault, calls, spend, reset, recover")
	case step.Fault != "":
		return knownFault(step.Fault, s.Servers)
	case step.Calls != 0 && !slices.Contains(answers, step.Answered):
		return fmt.Errorf("answered: %q, want one of %v", step.Answered, answers)
	case step.Spend != "" && (step.Times < 1 || step.Pass == nil || *step.Pass > step.Times):
		return fmt.Errorf("spend: want times, and pass of at most as many")
	case step.Rule == "soon" && s.Strategy == "commands":
		return errors.New("rule: soon is no window, which commands keep alone")
	case step.Origin < 0 || step.Origin > s.Origins:
		return fmt.Errorf("origin: %d, want 1 to %d", step.Origin, s.Origins)
	}
	return nil
}

func knownFault(name, servers string) error {
	f, known := faultCommands[name]
	if !known {
		return fmt.Errorf("fault: %q is none", name)
	}
	if !slices.Contains(f.on, servers) {
		return fmt.Errorf("fault: %s needs servers: %s", name, strings.Join(f.on, " or "))
	}
	return nil
}
