// Writes databases with bbolt, and judges them.
//
//	program make DIRECTORY   writes databases, and older states of some of them
//	program judge FILE...    exits with 0 if bbolt's own check finds no error
//	program unused FILE      prints the ranges of bytes that bbolt does not use
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	switch os.Args[1] {
	case "make":
		makeAll(os.Args[2])
	case "judge":
		// A loop of pages must end soon.
		debug.SetMaxStack(32 << 20)
		for _, path := range os.Args[2:] {
			judge(path)
		}
	case "unused":
		unused(os.Args[2])
	}
}

func judge(path string) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(err)
	must(db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			log.Fatal(err)
		}
		return nil
	}))
	must(db.Close())
}

// A database in the making.
type maker struct {
	path string
	db   *bolt.DB
	rand *rand.Rand
}

func open(directory, name string, options bolt.Options) *maker {
	path := filepath.Join(directory, name+".db")
	options.NoSync = true
	db, err := bolt.Open(path, 0o600, &options)
	must(err)
	seed := int64(0)
	for _, letter := range name {
		seed = seed*31 + int64(letter)
	}
	return &maker{path, db, rand.New(rand.NewSource(seed))}
}

func (m *maker) update(change func(tx *bolt.Tx) error) *maker {
	must(m.db.Update(change))
	return m
}

// put writes keys of a bucket in transactions of 100.
func (m *maker) put(bucket string, from, to, size int) *maker {
	for ; from < to; from += 100 {
		m.update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			must(err)
			for n := from; n < from+100 && n < to; n++ {
				value := make([]byte, m.rand.Intn(size)+1)
				m.rand.Read(value)
				must(b.Put([]byte(fmt.Sprintf("key-%07d", n*7919%1000003)), value))
			}
			return nil
		})
	}
	return m
}

// remove deletes every key of a bucket but each tenth.
func (m *maker) remove(bucket string) *maker {
	return m.update(func(tx *bolt.Tx) error {
		n, keys := 0, [][]byte{}
		must(tx.Bucket([]byte(bucket)).ForEach(func(key, _ []byte) error {
			if n++; n%10 != 0 {
				keys = append(keys, append([]byte{}, key...))
			}
			return nil
		}))
		for _, key := range keys {
			must(tx.Bucket([]byte(bucket)).Delete(key))
		}
		return nil
	})
}

// nest makes trees of buckets, some of them inside a page.
func (m *maker) nest(width, depth int) *maker {
	var fill func(b *bolt.Bucket, depth int)
	fill = func(b *bolt.Bucket, depth int) {
		for n := 0; n < width; n++ {
			must(b.Put([]byte(fmt.Sprintf("value-%d", n)), make([]byte, m.rand.Intn(60))))
			if depth > 0 {
				child, err := b.CreateBucketIfNotExists([]byte(fmt.Sprintf("bucket-%d", n)))
				must(err)
				fill(child, depth-1)
			}
		}
	}
	return m.update(func(tx *bolt.Tx) error {
		for n := 0; n < width; n++ {
			b, err := tx.CreateBucketIfNotExists([]byte(fmt.Sprintf("nested-%d", n)))
			must(err)
			fill(b, depth)
		}
		return nil
	})
}

// mix makes random changes in random buckets.
func (m *maker) mix(transactions int) *maker {
	for ; transactions > 0; transactions-- {
		m.update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte{byte('a' + m.rand.Intn(5))})
			must(err)
			for n := m.rand.Intn(30); n > 0; n-- {
				key := []byte(fmt.Sprintf("%x", m.rand.Intn(300)))
				switch m.rand.Intn(6) {
				case 0, 1, 2:
					if b.Bucket(key) == nil {
						must(b.Put(key, make([]byte, m.rand.Intn(1500))))
					}
				case 3:
					if b.Bucket(key) == nil {
						must(b.Delete(key))
					}
				case 4:
					if b.Get(key) == nil {
						child, err := b.CreateBucketIfNotExists(key)
						must(err)
						must(child.Put(key, make([]byte, m.rand.Intn(200))))
					}
				case 5:
					if b.Bucket(key) != nil {
						must(b.DeleteBucket(key))
					}
				}
			}
			return nil
		})
	}
	return m
}

// keep copies the state of now to a file of its own.
func (m *maker) keep() *maker {
	must(m.db.View(func(tx *bolt.Tx) error { return tx.CopyFile(m.path+".old", 0o600) }))
	return m
}

func (m *maker) close() {
	must(m.db.Close())
}

func makeAll(to string) {
	open(to, "new", bolt.Options{}).close()
	open(to, "one", bolt.Options{}).put("b", 0, 1, 10).close()
	open(to, "bucket", bolt.Options{}).put("b", 0, 0, 1).nest(1, 0).close()
	open(to, "some", bolt.Options{}).put("b", 0, 200, 300).keep().put("b", 100, 300, 300).close()
	open(to, "deep", bolt.Options{PageSize: 1024}).put("b", 0, 5000, 40).keep().remove("b").close()
	open(to, "small", bolt.Options{PageSize: 512}).nest(4, 2).keep().nest(5, 2).close()
	open(to, "wide", bolt.Options{PageSize: 16384}).put("b", 0, 900, 200).close()
	open(to, "long", bolt.Options{}).put("b", 0, 20, 50000).keep().remove("b").put("c", 0, 5, 9000).close()
	open(to, "nested", bolt.Options{}).nest(5, 3).keep().nest(6, 3).close()
	open(to, "unlisted", bolt.Options{NoFreelistSync: true}).mix(60).keep().mix(20).close()
	open(to, "ungrown", bolt.Options{NoGrowSync: true}).put("b", 0, 700, 100).remove("b").close()
	hash := bolt.Options{FreelistType: bolt.FreelistMapType}
	open(to, "hashed", hash).mix(80).keep().mix(40).close()
	for n := 0; n < 8; n++ {
		open(to, fmt.Sprintf("mixed-%d", n), bolt.Options{}).mix(20 + 30*n).keep().mix(15).close()
	}
	// More than 65535 free pages, whose number does not fit the header of the list.
	open(to, "free", bolt.Options{PageSize: 512}).put("b", 0, 10, 10).update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("b")).Put([]byte("long"), make([]byte, 40<<20))
	}).update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("b")).Delete([]byte("long"))
	}).put("b", 0, 20, 10).close()
	members(to, 1)
	members(to, 3)
	members(to, 500)
}

// members writes a database with as many keys as a cluster of etcd has members.
func members(to string, count int) {
	open(to, fmt.Sprintf("members-%d", count), bolt.Options{}).put("auth", 0, 10, 10).update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("members"))
		must(err)
		for n := 0; n < count; n++ {
			must(b.Put([]byte(fmt.Sprintf("%016x", n)), []byte("{}")))
		}
		return nil
	}).close()
}

func unused(path string) {
	content, err := os.ReadFile(path)
	must(err)
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(err)
	size := db.Info().PageSize
	must(db.View(func(tx *bolt.Tx) error {
		// Reads the list of free pages, which Page() needs.
		for err := range tx.Check() {
			log.Fatal(err)
		}
		for id := 0; ; {
			info, err := tx.Page(id)
			must(err)
			if info == nil {
				return nil
			}
			at, end := id*size, (id+info.OverflowCount+1)*size
			last := at + info.Count*16
			word := func(n int) int { return int(binary.NativeEndian.Uint32(content[last+4*n:])) }
			switch {
			case info.Type == "free":
				end = at + size
			case info.Type == "meta":
				at += 80
			case info.Type == "freelist":
				end = at
			case info.Count == 0:
				at += 16
			case info.Type == "branch":
				at = last + word(0) + word(1)
			case info.Type == "leaf":
				at = last + word(1) + word(2) + word(3)
			default:
				log.Fatal(info.Type)
			}
			if at < end {
				fmt.Println(at, end)
			}
			id += info.OverflowCount + 1
		}
	}))
}
