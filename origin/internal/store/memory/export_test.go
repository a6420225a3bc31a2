package memory

import "fmt"

// Contents is all that a store holds, as text.
func (s *Store) Contents() map[string]string {
	all := map[string]string{}
	for i := range s.shards {
		for name, c := range s.shards[i].counters {
			all[string(name[:])] = fmt.Sprintf("%+v until %d", c.state, c.until)
		}
	}
	return all
}
