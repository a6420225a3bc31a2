package rule

// Scalar is a value as written in a file.
type Scalar struct {
	Text string
	At   Source
	Set  bool // false: the field is absent
}

// Spec is a rule as written, before validation. The zero value of a field means that it is absent.
type Spec struct {
	At Source // where the rule begins

	Name, Where, Algorithm  Scalar
	Limit, Burst            Scalar
	Paths, Methods, By      []Scalar
	MatchAt                 Source // where `match` stands; zero when absent
	PrefixAt, ValidAt       Source // where `address-prefix`, `valid-key` stand; zero when absent
	PrefixV4, PrefixV6      Scalar
	ValidLimit, ValidBurst  Scalar
	OnStoreFailure, Headers Scalar
}

// present tells whether an optional section was written.
func present(at Source) bool { return at != Source{} }
