// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

// Event is something that happens while the backups run. It waits for When, then for After, then it does Do.
type Event struct {
	When  *Condition `yaml:"when"`
	After Duration   `yaml:"after"`
	Do    Action     `yaml:"do"`
}

// Targets of kill, term, start, stop and restart.
const (
	TargetServer    = "server"
	TargetAPIServer = "apiserver"
	// TargetSidecars are the csi-snapshotters of all drivers.
	TargetSidecars           = "csi-snapshotter"
	TargetSnapshotController = "snapshot-controller"
)

// Action is one thing done to the lab. Exactly one key is set.
type Action struct {
	// Kill ends the server by SIGKILL, Term by SIGTERM; Start starts it again. Stop ends the csi-snapshotter sidecars or the
	// snapshot-controller, which Start can start again, too.
	Kill  string `yaml:"kill"`
	Term  string `yaml:"term"`
	Start string `yaml:"start"`
	Stop  string `yaml:"stop"`
	// Restart stops and starts the apiserver, or ends the server by SIGTERM and starts it again.
	Restart string `yaml:"restart"`
	// Behaviour replaces the rules of a driver.
	Behaviour *BehaviourChange `yaml:"behaviour"`
	// Delete deletes an object.
	Delete *Delete `yaml:"delete"`
	// API makes the API misbehave for one client.
	API *APIFault `yaml:"api"`
	// NextServer is what the server is from its next start on; it starts nothing.
	NextServer *Server `yaml:"nextServer"`
	// Create creates an object, and Patch changes one.
	Create Manifest `yaml:"create"`
	Patch  *Patch   `yaml:"patch"`
}

// Manifest is a Kubernetes object as kubectl takes it. Velero's types and all others of the cluster are possible.
type Manifest map[string]any

// Patch is a JSON merge patch of one object.
type Patch struct {
	// Kind is any kind that the lab knows, such as Backup.
	Kind      string `yaml:"kind"`
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// Merge is the patch.
	Merge map[string]any `yaml:"merge"`
}

// APIFault is something that goes wrong between a client and the API server. Either it is for requests (Answer, Slow, or
// both), or for watches (CutWatches, ExpireWatches), or it ends what earlier events began (Clear).
type APIFault struct {
	// Of is the client: server (the default) or snapshot-controller.
	Of string `yaml:"of"`
	// Answer is the HTTP status that the requests get instead of reaching the API server.
	Answer int `yaml:"answer"`
	// RetryAfter is the header of the answer, in whole seconds. Default: 1s for 429, none for others.
	RetryAfter Duration `yaml:"retryAfter"`
	// Slow is how long the requests wait before they are answered or passed on.
	Slow Duration `yaml:"slow"`
	// Verbs and Resources select the requests; empty is all. A resource is a plural name, with /status for the subresource.
	Verbs     []string `yaml:"verbs"`
	Resources []string `yaml:"resources"`
	// For and Times end it by time and by the number of requests. Default: no end.
	For   Duration `yaml:"for"`
	Times int      `yaml:"times"`
	// CutWatches ends all open watches once; ExpireWatches does so too, and refuses to take them up where they ended.
	CutWatches    bool `yaml:"cutWatches"`
	ExpireWatches bool `yaml:"expireWatches"`
	Clear         bool `yaml:"clear"`
}

// BehaviourChange replaces the behaviour of a driver.
type BehaviourChange struct {
	// Driver defaults to the first.
	Driver string      `yaml:"driver"`
	Rules  []Behaviour `yaml:"rules"`
}

// Delete names an object: by name, or for a VolumeSnapshot and a VolumeSnapshotContent by the claim it was made of.
type Delete struct {
	// Kind is any kind of the cluster, such as Pod or VolumeSnapshot.
	Kind      string `yaml:"kind"`
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// Of is "namespace/pvc".
	Of string `yaml:"of"`
}

// Step is done after the backups. Exactly one of its keys is set, apart from In.
type Step struct {
	// In is the cluster: first (the default) or second.
	In string `yaml:"in"`
	// Await waits for a condition.
	Await *Condition `yaml:"await"`
	// Server starts the server anew with another engine, arguments or environment.
	Server *Server `yaml:"server"`
	// Restore makes a restore and waits for its end.
	Restore *Restore `yaml:"restore"`
	// DeleteBackup deletes a backup through Velero and waits until it is gone.
	DeleteBackup string `yaml:"deleteBackup"`
	// Backup makes one more backup and waits for its end.
	Backup *Backup `yaml:"backup"`
	// Run runs the Velero command line.
	Run *Run `yaml:"run"`
	// Do does what an event can do.
	Do *Action `yaml:"do"`
}

// Clusters that a step can be done in.
const (
	InFirst  = "first"
	InSecond = "second"
)

// Restore is a Velero restore of a backup.
type Restore struct {
	// Name defaults to "<backup>-restore".
	Name   string      `yaml:"name"`
	Backup string      `yaml:"backup"`
	Spec   RestoreSpec `yaml:"spec"`
}

// Run is a call of the Velero command line, against the lab's cluster.
type Run struct {
	// Name under which the result has it in "commands".
	Name string   `yaml:"name"`
	Args []string `yaml:"args"`
}
