// Package benchorigin measures what a decision costs the store and its caller.
package benchorigin
