package stand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// answersWithin bounds how long an engine may take to say that it is there.
const answersWithin = 20 * time.Second

// clientAnswers runs a client command that changes nothing, returning an error that holds what it complains of.
func clientAnswers(command ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
	defer cancel()
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func findEngine() (string, error) {
	if err := clientAnswers("docker", "version", "--format", "{{.Server.Version}}"); err != nil {
		return "", fmt.Errorf("no container engine answers: start Docker, or as root run: .ci/engine make test-container (%w)", err)
	}
	return exec.LookPath("docker")
}

// composeCommand is the plugin of Docker's client, or the program of old.
func composeCommand() ([]string, error) {
	plugin := clientAnswers("docker", "compose", "version")
	if plugin == nil {
		return []string{"docker", "compose"}, nil
	}
	program := clientAnswers("docker-compose", "version")
	if program == nil {
		return []string{"docker-compose"}, nil
	}
	return nil, errors.Join(plugin, program)
}

func findCompose() (string, error) {
	command, err := composeCommand()
	if err != nil {
		return "", fmt.Errorf("docker compose is missing: install it (Debian: apt install docker-compose) (%w)", err)
	}
	return exec.LookPath(command[0])
}

// ComposeCommand is how compose files are run here.
func ComposeCommand(t testing.TB) []string {
	t.Helper()
	command, err := composeCommand()
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// Container is a program in an image, on the host's network and without any right: its file system is read-only, and
// it is the user that the image names.
type Container struct {
	Name    string
	Image   Part
	Program string   // the image's own if empty
	Mounts  []string // host path:path, or with :ro
	Args    []string // the image's own if empty
}

// command is the client's command line that runs the container in the foreground and forwards signals to it.
func (c Container) command(t testing.TB) *exec.Cmd {
	t.Helper()
	args := []string{
		"run", "--rm", "--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--security-opt", "label=disable", // where SELinux is, it keeps a container from the test's files
		"--log-driver", "none", "--label", label(),
	}
	for _, m := range c.Mounts {
		args = append(args, "--volume", m)
	}
	if c.Program != "" {
		args = append(args, "--entrypoint", c.Program)
	}
	return exec.Command(Path(t, Engine), append(append(args, Load(t, c.Image)), c.Args...)...)
}

// label marks the containers of this process's tests.
func label() string { return "weir-test=" + strconv.Itoa(os.Getpid()) }

// Containers counts the running containers that this process's tests have started.
func Containers(t testing.TB) int {
	t.Helper()
	out, err := exec.Command(Path(t, Engine), "ps", "--quiet", "--filter", "label="+label()).Output()
	if err != nil {
		t.Fatalf("docker ps: %v", err)
	}
	return len(strings.Fields(string(out)))
}

// StartContainer runs a container until the test ends; dir is where its log goes.
func StartContainer(t testing.TB, dir string, c Container) *Process {
	t.Helper()
	command := c.command(t)
	return Start(t, dir, c.Name, command.Path, command.Args[1:], nil)
}

var loaded = struct {
	sync.Mutex
	ids map[Part]string
}{ids: map[Part]string{}}

// Load loads an image once in the life of the test's process, returning its id.
func Load(t testing.TB, image Part) string {
	t.Helper()
	loaded.Lock()
	defer loaded.Unlock()
	if id := loaded.ids[image]; id != "" {
		return id
	}
	docker := Path(t, Engine)
	out, err := exec.Command(docker, "load", "--quiet", "--input", Path(t, image)).CombinedOutput()
	if err != nil {
		t.Fatalf("load %s: %v\n%s", image, err, out)
	}
	_, reference, found := strings.Cut(strings.TrimSpace(string(out)), "Loaded image: ")
	if !found {
		t.Fatalf("load %s: %q names no image", image, out)
	}
	// By its id, since another checkout's tests may load an image of the same name.
	id, err := exec.Command(docker, "image", "inspect", "--format", "{{.Id}}", reference).Output()
	if err != nil {
		t.Fatalf("inspect %s: %v", reference, err)
	}
	loaded.ids[image] = strings.TrimSpace(string(id))
	return loaded.ids[image]
}

// open lets a container's user write into a folder of the test's, whose own folder above is closed to others.
func open(t testing.TB, folder string) {
	t.Helper()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
}
