// Measures transactions of bbolt: a bucket, then COUNT puts of one key each, every put in a
// transaction of its own. The last word of the output is the time of a put in nanoseconds.
// usage: bolt sync|no-sync DIRECTORY COUNT
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"
)

var bucket = []byte("bench")

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	noSync := os.Args[1] == "no-sync"
	path := filepath.Join(os.Args[2], "base")
	db, err := bolt.Open(path, 0o644, &bolt.Options{NoSync: noSync, NoGrowSync: noSync})
	must(err)
	fmt.Printf("NoSync=%t NoGrowSync=%t NoFreelistSync=%t, page size %d\n",
		db.NoSync, db.NoGrowSync, db.NoFreelistSync, db.Info().PageSize)
	must(db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(bucket)
		return err
	}))
	start := time.Now()
	for n := 0; n < count; n++ {
		key := []byte(fmt.Sprintf("key-%08d", n))
		must(db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket(bucket).Put(key, []byte("value"))
		}))
	}
	elapsed := time.Since(start)
	must(db.Close())
	check(path, count)
	fmt.Println(float64(elapsed.Nanoseconds()) / float64(count))
}

// check fails unless every page is sound and all keys are there.
func check(path string, count int) {
	db, err := bolt.Open(path, 0o644, &bolt.Options{ReadOnly: true})
	must(err)
	must(db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		if found := tx.Bucket(bucket).Stats().KeyN; found != count {
			return fmt.Errorf("%d keys instead of %d", found, count)
		}
		return nil
	}))
	must(db.Close())
}
