package wasmhost

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// WASI errno values that Envoy answers with.
const (
	errnoBadf   = 8
	errnoFault  = 21
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

// wasiCalls are the WASI functions that Envoy implements, with its answers; the rest of its table says ENOSYS.
var wasiCalls = map[string]hostCall{
	"args_get":       func(*vm, []uint64) uint64 { return 0 },
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
	"fd_read":  nosys,
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
	"fd_prestat_get":      func(*vm, []uint64) uint64 { return errnoBadf },
	"fd_prestat_dir_name": nosys,
	"fd_fdstat_set_flags": nosys,
	"path_open":           nosys,
	"poll_oneoff":         nosys,
	"sched_yield":         nosys,
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

func nosys(*vm, []uint64) uint64 { return errnoNosys }

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
