package rule

// Network is the IP addresses that begin with the first Bits bits of Address.
type Network struct {
	V6      bool
	Bits    uint8    // 0 to 32, v6 to 128
	Address [16]byte // v4 in the first 4; zero past Bits
}

// Valid tells whether n is a network of its family with nothing set past its bits.
func (n Network) Valid() bool {
	if n.Bits > 128 || !n.V6 && n.Bits > 32 {
		return false
	}
	for i, b := range n.Address {
		switch keep := int(n.Bits) - 8*i; {
		case keep <= 0 && b != 0:
			return false
		case keep > 0 && keep < 8 && b<<keep != 0:
			return false
		}
	}
	return true
}
