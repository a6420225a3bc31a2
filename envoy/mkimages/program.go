package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// architectures are the machines that there are images for, in the words of the image specification.
var architectures = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// architecture is the machine that a Linux program is for.
func architecture(path string) (string, error) {
	program, err := elf.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: run `make tools build` first", err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: want a Linux program: %w", path, err)
	}
	defer program.Close()
	arch, known := architectures[program.Machine]
	if !known {
		return "", fmt.Errorf("%s: is for %v: want amd64 or arm64", path, program.Machine)
	}
	return arch, nil
}

// staticProgram reads a program that needs no library.
func staticProgram(path string) (program file, arch string, err error) {
	if arch, err = architecture(path); err != nil {
		return file{}, "", err
	}
	dynamic, err := isDynamic(path)
	if err == nil && dynamic {
		err = fmt.Errorf("%s: needs shared libraries: want one built with CGO_ENABLED=0", path)
	}
	if err != nil {
		return file{}, "", err
	}
	program, err = readProgram(path, "weir")
	return program, arch, err
}

// dynamicPrograms reads programs, by the names that they get, with all the shared libraries that they need, the loader
// among them. An empty arch takes any, but the same for all.
func dynamicPrograms(arch string, paths map[string]string) (programs, libraries []file, err error) {
	var needed []string
	for name, path := range paths {
		own, err := architecture(path)
		if err != nil {
			return nil, nil, err
		}
		if arch != "" && own != arch {
			return nil, nil, fmt.Errorf("%s: is for %s: want %s, as the other parts", path, own, arch)
		}
		arch = own
		program, err := readProgram(path, name)
		if err != nil {
			return nil, nil, err
		}
		programs = append(programs, program)
		names, err := sharedLibraries(path)
		if err != nil {
			return nil, nil, err
		}
		needed = append(needed, names...)
	}
	slices.Sort(needed)
	for _, path := range slices.Compact(needed) {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		libraries = append(libraries, file{path: strings.TrimPrefix(path, "/"), content: content, mode: 0o755})
	}
	return programs, libraries, nil
}

func readProgram(path, name string) (file, error) {
	content, err := os.ReadFile(path)
	return file{path: binFolder + "/" + name, content: content, mode: 0o755}, err
}

func isDynamic(path string) (bool, error) {
	program, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer program.Close()
	return slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}

// sharedLibraries asks the system's own loader which files it would load for a program, itself among them. A static
// program needs none.
func sharedLibraries(path string) ([]string, error) {
	dynamic, err := isDynamic(path)
	if err != nil || !dynamic {
		return nil, err
	}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", path, err)
	}
	return parseLdd(path, string(out))
}

// parseLdd reads the files from what ldd says: "libm.so.6 => /lib/libm.so.6 (0x…)", and the loader, which it names by
// its path alone. The kernel's own vdso is no file.
func parseLdd(program, text string) (libraries []string, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, found, arrow := strings.Cut(line, " => ")
		if !arrow {
			found = name
		}
		if strings.HasPrefix(found, "not found") {
			return nil, fmt.Errorf("%s: needs %s, which is not on this system", program, name)
		}
		if path, _, _ := strings.Cut(found, " ("); strings.HasPrefix(path, "/") {
			libraries = append(libraries, path)
		}
	}
	if len(libraries) == 0 {
		return nil, fmt.Errorf("ldd names no library of %s: %q", program, text)
	}
	return libraries, nil
}
