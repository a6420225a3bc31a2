package server

import "time"

// DrainWithin bounds how long requests in flight may take to finish.
func (s *Server) DrainWithin(d time.Duration) { s.drainTime = d }

// OpenWithin is [Open] of a gateway with so many requests in flight at most.
var OpenWithin = openWithin
