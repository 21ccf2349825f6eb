// Writes a known sequence of transactions to a bbolt database, and checks it.
//
//	program write FILE FROM TO   makes transactions FROM to TO
//	program check FILE           prints the number of transactions; exits with 3 if the pages
//	                             are in order and the content is of no such number
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// ring is the number of keys that later transactions overwrite.
const ring = 7

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	must(err)
	return n
}

func main() {
	// A loop of pages must end soon.
	debug.SetMaxStack(32 << 20)
	switch os.Args[1] {
	case "write":
		write(os.Args[2], number(os.Args[3]), number(os.Args[4]))
	case "check":
		check(os.Args[2])
	}
}

func key(n int) []byte   { return []byte(fmt.Sprintf("%06d", n)) }
func short(n int) []byte { return bytes.Repeat(key(n), n*37%500+1) }
func long(n int) []byte  { return bytes.Repeat(key(n), n*977%3000+1) }

func write(path string, from, to int) {
	db, err := bolt.Open(path, 0o600, nil)
	must(err)
	for n := from; n <= to; n++ {
		must(db.Update(func(tx *bolt.Tx) error {
			all, err := tx.CreateBucketIfNotExists([]byte("all"))
			must(err)
			last, err := tx.CreateBucketIfNotExists([]byte("last"))
			must(err)
			must(all.Put(key(n), short(n)))
			return last.Put(key(n%ring), long(n))
		}))
	}
	must(db.Close())
}

func check(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		fmt.Println(0)
		return
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(err)
	must(db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			log.Fatal(err)
		}
		count, right := content(tx)
		fmt.Println(count)
		if !right {
			os.Exit(3)
		}
		return nil
	}))
}

// content returns the number of transactions, and whether the content is what they wrote.
func content(tx *bolt.Tx) (count int, right bool) {
	all, last := tx.Bucket([]byte("all")), tx.Bucket([]byte("last"))
	if all == nil || last == nil {
		return 0, all == nil && last == nil
	}
	right = true
	must(all.ForEach(func(k, v []byte) error {
		count++
		right = right && bytes.Equal(k, key(count)) && bytes.Equal(v, short(count))
		return nil
	}))
	found := 0
	must(last.ForEach(func(_, _ []byte) error { found++; return nil }))
	for n := max(1, count-ring+1); n <= count; n++ {
		right = right && bytes.Equal(last.Get(key(n%ring)), long(n))
	}
	return count, right && found == min(count, ring)
}
