package wasmhost

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// asm writes small modules by hand, so that a test shows each host call that the module makes.
type asm struct {
	types   [][]byte
	imports []Import
	funcs   []asmFunc
	data    []byte // from dataAt on

	numbersAt int // where the texts of numbers lie, 0: not yet
}

type asmFunc struct {
	export string
	typ    int
	body   []byte
}

// Memory of an asm module: a scratch area for results, texts, then what the allocator gives out.
const (
	heapCell = 8
	scratch  = 64
	dataAt   = 1024
	heapAt   = 16384
)

// newAsm is a module with ABI version, _initialize and a bump allocator.
func newAsm() *asm { return &asm{} }

func leb(n int64) []byte {
	var b []byte
	for {
		c := byte(n & 0x7f)
		n >>= 7
		if n == 0 && c&0x40 == 0 || n == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func uleb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func vec(b []byte) []byte { return append(uleb(len(b)), b...) }

func (a *asm) typeOf(params, results []api.ValueType) int {
	t := append(append([]byte{0x60}, vec(params)...), vec(results)...)
	if i := slices.IndexFunc(a.types, func(o []byte) bool { return string(o) == string(t) }); i >= 0 {
		return i
	}
	a.types = append(a.types, t)
	return len(a.types) - 1
}

// host imports a function of the table and returns its index. All imports come before the first export.
func (a *asm) host(name string) int {
	for _, im := range Offered() {
		if im.Module+"."+im.Name == name {
			return a.declare(im)
		}
	}
	panic("no such import: " + name)
}

func (a *asm) declare(im Import) int {
	if i := slices.IndexFunc(a.imports, func(o Import) bool { return o.Module == im.Module && o.Name == im.Name }); i >= 0 {
		return i
	}
	a.imports = append(a.imports, im)
	return len(a.imports) - 1
}

// callbacks gives the types of exports.
var callbacks = map[string]struct{ params, results int }{
	"proxy_abi_version_0_2_0": {0, 0}, "_initialize": {0, 0}, "proxy_on_memory_allocate": {1, 1},
	"proxy_on_vm_start": {2, 1}, "proxy_on_configure": {2, 1}, "proxy_on_tick": {1, 0},
	"proxy_on_context_create": {2, 0}, "proxy_on_request_headers": {3, 1}, "proxy_on_response_headers": {3, 1},
	"proxy_on_log": {1, 0}, "proxy_on_done": {1, 1}, "proxy_on_delete": {1, 0}, "proxy_on_http_call_response": {5, 0},
}

// export adds a callback made of pieces of code; what it returns must be left on the stack.
func (a *asm) export(name string, code ...[]byte) *asm {
	sig := callbacks[name]
	i32s := func(n int) []api.ValueType { return slices.Repeat([]api.ValueType{api.ValueTypeI32}, n) }
	a.funcs = append(a.funcs, asmFunc{name, a.typeOf(i32s(sig.params), i32s(sig.results)), slices.Concat(code...)})
	return a
}

func i32(n int) []byte { return append([]byte{0x41}, leb(int64(int32(n)))...) }

func arg(i int) []byte { return append([]byte{0x20}, uleb(i)...) }

func load(at int) []byte { return slices.Concat(i32(at), []byte{0x28, 2, 0}) }

var (
	drop        = []byte{0x1a}
	eqz         = []byte{0x45}
	add         = []byte{0x6a}
	mul         = []byte{0x6c}
	store       = []byte{0x36, 2, 0}
	unreachable = []byte{0}
)

func when(code ...[]byte) []byte { // runs code if the top of the stack is not 0
	return slices.Concat([]byte{0x04, 0x40}, slices.Concat(code...), []byte{0x0b})
}

// call calls an import with arguments: an int is a constant, a string two constants (address, length), a []byte code.
func (a *asm) call(name string, args ...any) []byte {
	var code []byte
	for _, v := range args {
		switch v := v.(type) {
		case int:
			code = append(code, i32(v)...)
		case string:
			code = append(code, i32(dataAt+len(a.data))...)
			code = append(code, i32(len(v))...)
			a.data = append(a.data, v...)
		case []byte:
			code = append(code, v...)
		}
	}
	return append(append(code, 0x10), uleb(a.host(name))...)
}

// bytes encodes the module.
func (a *asm) bytes() []byte {
	for name, code := range map[string][]byte{
		"proxy_abi_version_0_2_0": nil, "_initialize": nil,
		"proxy_on_memory_allocate": slices.Concat(load(heapCell), i32(heapCell), load(heapCell), arg(0), add, store),
	} {
		if !slices.ContainsFunc(a.funcs, func(f asmFunc) bool { return f.export == name }) {
			a.export(name, code)
		}
	}
	section := func(id byte, entries ...[]byte) []byte {
		return append([]byte{id}, vec(append(uleb(len(entries)), slices.Concat(entries...)...))...)
	}
	text := func(s string) []byte { return vec([]byte(s)) }
	var imports, funcs, exports, codes [][]byte
	for _, im := range a.imports {
		t := uleb(a.typeOf(im.Params, im.Results))
		imports = append(imports, slices.Concat(text(im.Module), text(im.Name), []byte{0}, t))
	}
	exports = append(exports, append(text("memory"), 2, 0))
	for i, f := range a.funcs {
		funcs = append(funcs, uleb(f.typ))
		exports = append(exports, slices.Concat(text(f.export), []byte{0}, uleb(len(a.imports)+i)))
		codes = append(codes, vec(slices.Concat([]byte{0}, f.body, []byte{0x0b})))
	}
	segment := func(at int, b []byte) []byte { return slices.Concat([]byte{0}, i32(at), []byte{0x0b}, vec(b)) }
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, a.types...), section(2, imports...),
		section(3, funcs...), section(5, []byte{0, 4}), section(7, exports...), section(10, codes...),
		section(11, segment(heapCell, binary.LittleEndian.AppendUint32(nil, heapAt)), segment(dataAt, a.data)))
}

// logResult logs the text whose address and size the last call wrote to the scratch area, with a mark before it.
func (a *asm) logResult(mark string) []byte {
	return slices.Concat(a.call("env.proxy_log", 2, mark), drop, a.call("env.proxy_log", 2, load(scratch), load(scratch+4)), drop)
}

// numbers are the texts of 000 to 999.
var numbers = func() string {
	var b strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&b, "%03d", n)
	}
	return b.String()
}()

// logNumber logs what code leaves on the stack, which must be below 1000.
func (a *asm) logNumber(code []byte) []byte {
	if a.numbersAt == 0 {
		a.numbersAt = dataAt + len(a.data)
		a.data = append(a.data, numbers...)
	}
	return slices.Concat(a.call("env.proxy_log", 2, code, i32(3), mul, i32(a.numbersAt), add, i32(3)), drop)
}

// tell logs "?mark" and the status of a call, then "=value" if the call put a text into the scratch area.
func (a *asm) tell(mark, name string, args ...any) []byte {
	clear := slices.Concat(i32(scratch), i32(0), store, i32(scratch+4), i32(0), store)
	return slices.Concat(a.call("env.proxy_log", 2, "?"+mark), drop, clear, a.logNumber(a.call(name, args...)),
		load(scratch+4), when(a.call("env.proxy_log", 2, "="), drop, a.call("env.proxy_log", 2, load(scratch), load(scratch+4)), drop))
}

// infoLines are what modules logged at level info.
func infoLines(h *Host) []string {
	var lines []string
	for _, l := range h.Logs() {
		if l.Level == 2 {
			lines = append(lines, strings.ReplaceAll(l.Text, "\x00", "|"))
		}
	}
	return lines
}
