// Writes databases with bbolt into a directory: one with some keys, and some with as many keys
// as a cluster of etcd has members.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	write("some", "b", 100)
	for _, count := range []int{1, 3, 500} {
		write(fmt.Sprintf("members-%d", count), "members", count)
	}
}

// write makes a database with `count` keys in a bucket, beside another bucket.
func write(name, bucket string, count int) {
	db, err := bolt.Open(filepath.Join(os.Args[1], name+".db"), 0o600, nil)
	must(err)
	must(db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("auth"))
		must(err)
		b, err := tx.CreateBucket([]byte(bucket))
		must(err)
		for n := 0; n < count; n++ {
			must(b.Put([]byte(fmt.Sprintf("%016x", n)), []byte("{}")))
		}
		return nil
	}))
	must(db.Close())
}
