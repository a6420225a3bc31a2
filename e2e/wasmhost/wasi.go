package wasmhost

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// WASI errno values that Envoy answers with.
const (
	errnoBadf   = 8
	errnoNoent  = 20 // as Envoy numbers it
	errnoFault  = 21
	errnoPath   = 44
	errnoNosys  = 52
	errnoNotsup = 58
)

// source is the repeatable randomness of one host.
type source struct{ *rand.ChaCha8 }

func newSource(seed uint64) *source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return &source{rand.NewChaCha8(key)}
}

// wasiCalls are the WASI functions that Envoy implements.
var wasiCalls = map[string]hostCall{
	"args_sizes_get": func(v *vm, a []uint64) uint64 { return v.errno(a, 0, 0) },
	"clock_time_get": clockTimeGet,
	"environ_get":    environGet,
	"environ_sizes_get": func(v *vm, a []uint64) uint64 {
		size := 0
		for _, e := range v.base.config.Env {
			size += len(e) + 1
		}
		return v.errno(a, uint32(len(v.base.config.Env)), uint32(size))
	},
	"fd_write": fdWrite,
	"fd_seek":  func(v *vm, _ []uint64) uint64 { v.host.log(4, "wasi_unstable fd_seek"); return 0 },
	"fd_close": func(v *vm, _ []uint64) uint64 { v.host.log(4, "wasi_unstable fd_close"); return 0 },
	"fd_fdstat_get": func(v *vm, a []uint64) uint64 {
		if a[0] != 1 && a[0] != 2 {
			return errnoBadf
		}
		stat := [24]byte{8: 64} // fs_rights_base: write
		if !v.mod.Memory().Write(uint32(a[1]), stat[:]) {
			return errnoFault
		}
		return 0
	},
	// Envoy logs the exit and returns to the module, which is then expected to trap by itself.
	"proc_exit": func(v *vm, _ []uint64) uint64 { v.host.log(4, "wasi_unstable proc_exit"); return 0 },
	"random_get": func(v *vm, a []uint64) uint64 {
		b := make([]byte, uint32(a[1]))
		_, _ = v.host.random.Read(b) // never fails
		if !v.mod.Memory().Write(uint32(a[0]), b) {
			return errnoFault
		}
		return 0
	},
}

// wasiConstants are the functions that Envoy 1.40.0 answers with one errno whatever the arguments, as it was seen to.
// poll_oneoff says success without waiting, so a sleep in a module is a busy loop.
var wasiConstants = map[string]uint64{
	"args_get": 0, "poll_oneoff": 0, "sched_yield": 0, "fd_advise": 0,
	"fd_allocate": errnoBadf, "fd_datasync": errnoBadf, "fd_fdstat_set_rights": errnoBadf, "fd_filestat_get": errnoBadf,
	"fd_filestat_set_size": errnoBadf, "fd_filestat_set_times": errnoBadf, "fd_prestat_get": errnoBadf,
	"fd_pwrite": errnoBadf, "fd_renumber": errnoBadf, "fd_sync": errnoBadf, "fd_tell": errnoBadf,
	"fd_fdstat_set_flags": errnoNosys, "fd_pread": errnoNosys, "fd_prestat_dir_name": errnoNosys, "fd_read": errnoNosys,
	"fd_readdir": errnoNoent, "path_open": errnoPath,
	"clock_res_get": errnoNotsup, "path_create_directory": errnoNotsup, "path_filestat_get": errnoNotsup,
	"path_filestat_set_times": errnoNotsup, "path_link": errnoNotsup, "path_readlink": errnoNotsup,
	"path_remove_directory": errnoNotsup, "path_rename": errnoNotsup, "path_symlink": errnoNotsup,
	"path_unlink_file": errnoNotsup, "sock_accept": errnoNotsup, "sock_recv": errnoNotsup, "sock_send": errnoNotsup,
	"sock_shutdown": errnoNotsup,
}

// errno writes one number behind each of the first pointers of a call.
func (v *vm) errno(pointers []uint64, values ...uint32) uint64 {
	for i, value := range values {
		if v.writeUint32(uint32(pointers[i]), value) != ok {
			return errnoFault
		}
	}
	return 0
}

// clockTimeGet knows the wall clock (0) and the monotonic one (1).
func clockTimeGet(v *vm, a []uint64) uint64 {
	var now uint64
	switch a[0] {
	case 0:
		now = uint64(v.host.clock.Wall().UnixNano())
	case 1:
		now = uint64(v.host.clock.Monotonic())
	default:
		return errnoNotsup
	}
	if v.writeUint64(uint32(a[2]), now) != ok {
		return errnoFault
	}
	return 0
}

func environGet(v *vm, a []uint64) uint64 {
	array, buffer := uint32(a[0]), uint32(a[1])
	for _, e := range v.base.config.Env {
		if v.writeUint32(array, buffer) != ok || !v.mod.Memory().WriteString(buffer, e+"\x00") {
			return errnoFault
		}
		array += 4
		buffer += uint32(len(e)) + 1
	}
	return 0
}

// fdWrite sends stdout to Envoy's log as info and stderr as error.
func fdWrite(v *vm, a []uint64) uint64 {
	level := map[uint64]int{1: 2, 2: 4}[a[0]]
	if level == 0 {
		return errnoBadf
	}
	var text strings.Builder
	for i := range uint32(a[2]) {
		iov := uint32(a[1]) + i*8
		ptr, ok1 := v.mod.Memory().ReadUint32Le(iov)
		size, ok2 := v.mod.Memory().ReadUint32Le(iov + 4)
		part, ok3 := v.read(ptr, size)
		if !ok1 || !ok2 || !ok3 {
			return errnoFault
		}
		text.WriteString(part)
	}
	if text.Len() > 0 {
		v.host.log(level, strings.TrimSuffix(text.String(), "\n"))
	}
	return v.errno(a[3:], uint32(text.Len()))
}
