package memory

import "fmt"

// Contents is all that a store holds, as text.
func (s *Store) Contents() map[string]string {
	all := map[string]string{}
	for i := range s.shards {
		t := &s.shards[i].table
		for n := range t.count {
			e, state := t.at(n), t.load(n)
			text := fmt.Sprintf("%+v until %d", [4]int64{e.a, e.b, e.c, e.d}, e.until)
			if state.log != nil {
				text = fmt.Sprintf("%v until %d", state.log.Integers(), e.until)
			}
			all[string(e.name[:])] = text
		}
	}
	for i := range s.ids {
		for id := range s.ids[i].until {
			all[string(id[:])] = "id"
		}
	}
	return all
}
