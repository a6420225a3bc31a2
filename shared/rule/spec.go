package rule

// Scalar is a value as written in a file.
type Scalar struct {
	Text string
	At   Source
	Set  bool // false: the field is absent
}

// Draft is a rules file as written, before validation.
type Draft struct {
	Rules     []Spec
	Tiers     []TierSpec
	Overrides []OverrideSpec
	Edge      EdgeSpec
	// Partial tells that some values of the file could not be read and are absent here. Rules are then not compared with
	// each other: one that lacks its match would seem to apply everywhere.
	Partial bool
}

// Spec is a rule as written, before validation. The zero value of a field means that it is absent.
type Spec struct {
	At Source // where the rule begins

	Name, Where, Algorithm, Mode Scalar
	Limit, Burst, Tier           Scalar
	Cost, Exact, Offset          Scalar
	By                           []Scalar // each one part, or parts with | between
	OnStoreFailure, Headers      Scalar
	MatchAt                      Source // where `match` stands; zero when absent
	Paths, Methods, Hosts        []Scalar
	HeaderNames                  []Scalar
	PrefixAt, ValidAt, PenaltyAt Source // where the sections stand; zero when absent
	PrefixV4, PrefixV6, OuterV6  Scalar // address-prefix
	ValidLimit, ValidBurst       Scalar // valid-key
	PenaltyAfter, PenaltyCeiling Scalar // penalty
	PenaltyDecay                 Scalar
}

// TierSpec is a tier as written: the limit that rules with `tier: true` give to its callers.
type TierSpec struct {
	At           Source
	Name         Scalar
	Limit, Burst Scalar
}

// OverrideSpec is an override as written: another limit of one rule for one caller.
type OverrideSpec struct {
	At                Source
	Rule              Scalar
	Key, User, Tenant Scalar // exactly one is set
	Limit, Burst      Scalar
}

// present tells whether an optional section was written.
func present(at Source) bool { return at != Source{} }
