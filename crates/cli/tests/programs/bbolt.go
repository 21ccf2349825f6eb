// Writes 200 transactions one after the other and 400 from 8 goroutines, then
// checks the database and prints a digest of its content.
package main

import (
	"crypto/sha256"
	"fmt"
	"log"
	"sync"

	bolt "go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func put(tx *bolt.Tx, name string, n int) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}
	key := []byte(fmt.Sprintf("key-%05d", n))
	return bucket.Put(key, make([]byte, n%700+1))
}

func main() {
	db, err := bolt.Open("base", 0o644, nil)
	must(err)
	for n := 0; n < 200; n++ {
		must(db.Update(func(tx *bolt.Tx) error { return put(tx, "one", n) }))
	}
	var writers sync.WaitGroup
	for writer := 0; writer < 8; writer++ {
		writers.Add(1)
		go func(first int) {
			defer writers.Done()
			for n := first; n < first+50; n++ {
				must(db.Batch(func(tx *bolt.Tx) error { return put(tx, "many", n) }))
			}
		}(writer * 1000)
	}
	writers.Wait()
	must(db.Sync())
	must(db.Close())

	db, err = bolt.Open("base", 0o644, &bolt.Options{ReadOnly: true})
	must(err)
	must(db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			digest, count := sha256.New(), 0
			err := bucket.ForEach(func(key, value []byte) error {
				count++
				digest.Write(key)
				digest.Write(value)
				return nil
			})
			fmt.Printf("%s: %d keys, %x\n", name, count, digest.Sum(nil))
			return err
		})
	}))
}
