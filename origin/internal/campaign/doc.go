// Package campaign tries to break every promise of the limiter, by random histories of processes, clients and faults in
// virtual time.
//
// A history is drawn from a seed, which is printed. What breaks a promise is made as short as it gets and printed as text;
// kept in a file under testdata, it is played again by each test run. `make campaign` looks for longer.
package campaign
