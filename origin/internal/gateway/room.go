package gateway

import "sync"

// room is a bounded number of places.
type room chan struct{}

func (r room) enter() bool {
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r room) leave() { <-r }

// place is one request's in a room. It belongs to one goroutine.
type place struct {
	room  room
	taken bool
}

func (p *place) take() bool {
	if !p.taken {
		p.taken = p.room.enter()
	}
	return p.taken
}

func (p *place) leave() {
	if p.taken {
		p.taken = false
		p.room.leave()
	}
}

// bufferSize is what [httputil.ReverseProxy] would make anew for each answer.
const bufferSize = 32 << 10

// buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return new([bufferSize]byte)[:]
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
