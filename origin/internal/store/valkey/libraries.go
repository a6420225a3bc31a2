package valkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/valkey-io/valkey-go"
)

// LibraryName is the name of the function library that this program loads.
func LibraryName() string { return production.name }

// libraryNames are those of Weir's libraries, whatever version they are of, and of its tests'.
var libraryNames = regexp.MustCompile(`^weir(test)?_[0-9a-f]{8}$`)

// IsLibraryName tells whether a function library of that name is one of Weir's.
func IsLibraryName(name string) bool { return libraryNames.MatchString(name) }

// Library is a function library of Weir's on one server.
type Library struct{ Server, Name string }

// Libraries finds Weir's function libraries on every server that counters are kept on: on each primary of a cluster. It
// connects for that alone. The error is of the first servers that do not answer; what is known without them is no list.
func Libraries(ctx context.Context, o Options) (all []Library, err error) {
	err = onServers(ctx, o, func(addr string, client valkey.Client) error {
		names, err := libraryList(ctx, client)
		for _, name := range names {
			all = append(all, Library{addr, name})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Library) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// DeleteLibraries deletes libraries, and tells which of them it did. One that is gone by itself is no error. Whoever uses
// one finds it missing and loads it again, without failing a call. This program's own is not deleted.
func DeleteLibraries(ctx context.Context, o Options, libraries []Library) (deleted []Library, err error) {
	for _, l := range libraries {
		if !IsLibraryName(l.Name) || l.Name == production.name {
			return nil, fmt.Errorf("library %s: want one of Weir's, but not this version's own", l.Name)
		}
	}
	err = onServers(ctx, o, func(addr string, client valkey.Client) error {
		for _, l := range libraries {
			if l.Server != addr {
				continue
			}
			err := client.Do(ctx, client.B().FunctionDelete().LibraryName(l.Name).Build()).Error()
			if err != nil && !strings.Contains(err.Error(), "Library not found") {
				return fmt.Errorf("delete library %s: %w", l.Name, err)
			}
			if err == nil {
				deleted = append(deleted, l)
			}
		}
		return nil
	})
	return deleted, err
}

// onServers connects to one server after the other and has do done with it, whatever became of the others.
func onServers(ctx context.Context, o Options, do func(addr string, client valkey.Client) error) error {
	o.DB = 0 // functions belong to none
	s := &Store{options: o}
	addrs := o.Addrs[:min(1, len(o.Addrs))]
	if o.Cluster {
		ranges, err := s.askSlots(ctx)
		if err != nil {
			return err
		}
		addrs = nil
		for _, r := range ranges {
			if !slices.Contains(addrs, r.addr) {
				addrs = append(addrs, r.addr)
			}
		}
	}
	var errs []error
	for _, addr := range addrs {
		client, err := valkey.NewClient(s.clientOption(addr))
		if err == nil {
			err = do(addr, client)
		}
		if client != nil {
			client.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		}
	}
	return errors.Join(errs...)
}

// libraryList are the names of a server's libraries that are Weir's.
func libraryList(ctx context.Context, client valkey.Client) (names []string, err error) {
	reply, err := client.Do(ctx, client.B().FunctionList().Libraryname("weir*").Build()).ToArray()
	if err != nil {
		if strings.Contains(err.Error(), "unknown command") {
			err = fmt.Errorf("%w: %w", errNoFunctions, err)
		}
		return nil, err
	}
	for _, entry := range reply {
		fields, err := entry.AsMap()
		if err != nil {
			return nil, fmt.Errorf("%w: FUNCTION LIST: %w", errUnreadable, err)
		}
		field := fields["library_name"]
		name, err := field.ToString()
		if err != nil {
			return nil, fmt.Errorf("%w: FUNCTION LIST: library_name: %w", errUnreadable, err)
		}
		if IsLibraryName(name) {
			names = append(names, name)
		}
	}
	return names, nil
}
