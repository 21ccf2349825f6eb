// Measures puts to an etcd with a single member, one after the other, over its gateway. The
// last word of the output is the time of a put in nanoseconds.
// usage: etcd sync|no-sync DIRECTORY COUNT COMMAND...     COMMAND starts etcd
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long etcd may take to answer, and to end.
const timeout = 2 * time.Minute

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// address returns an address on which no process listens.
func address() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer listener.Close()
	return listener.Addr().String()
}

// gateway is a connection to the gateway. It writes its few lines of HTTP itself: to compile
// net/http takes 14 s of processor time, most of it for TLS.
type gateway struct {
	*textproto.Conn
	socket net.Conn
}

// ask sends a request to the gateway and returns the answer. etcd sends short answers with their
// Content-Length. An answer without Content-Length, such as a chunked answer, is an error.
func (g gateway) ask(path string, request map[string]any) (map[string]any, error) {
	body, err := json.Marshal(request)
	must(err)
	if err := g.socket.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	fmt.Fprintf(g.W, "POST %s HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
	if err := g.W.Flush(); err != nil {
		return nil, err
	}
	status, err := g.ReadLine()
	if err != nil {
		return nil, err
	}
	header, err := g.ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	length, err := strconv.ParseUint(header.Get("Content-Length"), 10, 20)
	if err != nil {
		return nil, fmt.Errorf("%s: the length of the answer: %w", status, err)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(g.R, text); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return nil, fmt.Errorf("%s: %s", status, text)
	}
	var answer map[string]any
	err = json.Unmarshal(text, &answer)
	return answer, err
}

func encoded(text string) string {
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// start starts etcd, which ends with this thread of this program.
func start(words []string) (*exec.Cmd, chan error) {
	runtime.LockOSThread()
	command := exec.Command(words[0], words[1:]...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must(command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return command, ended
}

// stop ends etcd. A failed commit, and a hold that cannot be stopped, have exit code 125.
func stop(command *exec.Cmd, ended chan error) {
	must(command.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		if command.ProcessState.ExitCode() == 125 {
			log.Fatal(err)
		}
	case <-time.After(timeout):
		log.Fatal("etcd does not end")
	}
}

func main() {
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	at, peer := address(), "http://"+address()
	client := "http://" + at
	words := append(os.Args[4:], "--data-dir", os.Args[2], "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	if os.Args[1] == "no-sync" {
		words = append(words, "--unsafe-no-fsync")
		fmt.Println("--unsafe-no-fsync")
	} else {
		fmt.Println("the default options")
	}
	command, ended := start(words)
	var etcd gateway
	ready := func() error {
		socket, err := net.Dial("tcp", at)
		if err != nil {
			return err
		}
		etcd = gateway{textproto.NewConn(socket), socket}
		if _, err = etcd.ask("/v3/kv/range", map[string]any{"key": encoded("key")}); err != nil {
			etcd.Close()
		}
		return err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := ready()
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			log.Fatal("etcd ended early: ", err)
		default:
		}
		if time.Since(begin) > timeout {
			log.Fatal("etcd does not answer: ", err)
		}
	}
	begin := time.Now()
	for n := 0; n < count; n++ {
		key := encoded(fmt.Sprintf("key-%08d", n))
		_, err := etcd.ask("/v3/kv/put", map[string]any{"key": key, "value": encoded("value")})
		must(err)
	}
	elapsed := time.Since(begin)
	// From "key-" to "key.": the next letter after the dash.
	all := map[string]any{"key": encoded("key-"), "range_end": encoded("key."), "count_only": true}
	answer, err := etcd.ask("/v3/kv/range", all)
	must(err)
	if found := fmt.Sprint(answer["count"]); found != strconv.Itoa(count) {
		log.Fatalf("%s keys instead of %d", found, count)
	}
	stop(command, ended)
	fmt.Println(float64(elapsed.Nanoseconds()) / float64(count))
}
