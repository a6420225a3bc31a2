package keys

// Find is the key of an id, nil for none. It looks at every key: it is for an operator's question, not for requests.
func (t *Table) Find(id string) *Key {
	for i := range t.keys {
		if t.keys[i].ID == id {
			return &t.keys[i]
		}
	}
	return nil
}
