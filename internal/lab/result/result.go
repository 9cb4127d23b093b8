// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import "time"

// Result is everything one experiment measured.
type Result struct {
	// Scenario is the scenario's name.
	Scenario string `json:"scenario"`
	// Engine is the engine that took the backups: "parallel" or "stock".
	Engine string `json:"engine"`
	// StartedAt is the moment the first backup was created; every other time is counted from it.
	StartedAt time.Time `json:"startedAt"`
	// Unfinished names what had not happened yet when the scenario's timeout passed, or when the server was gone and
	// nothing was left that would start it again. Empty when everything came to its end.
	Unfinished string `json:"unfinished"`
	// FloorSeconds is how long the same VolumeSnapshots took with no Velero at all, all created at once, until every
	// handle was there. Zero when the scenario switched the floor off.
	FloorSeconds float64 `json:"floorSeconds"`
	// Volumes is the number of different PVCs that the backups took a snapshot of.
	Volumes int `json:"volumes"`

	// Backups are keyed by the backup's name.
	Backups map[string]*Backup `json:"backups"`
	// Restores are keyed by the restore's name.
	Restores map[string]*Restore `json:"restores"`
	// Deletions are keyed by the name of the backup that a step deleted.
	Deletions map[string]*Deletion `json:"deletions"`
	// Commands are keyed by the name of the step that ran the Velero command line.
	Commands map[string]*Command `json:"commands"`
	// Pods are keyed "namespace/name".
	Pods map[string]*Pod `json:"pods"`
	// Drivers are keyed by the CSI driver's name.
	Drivers map[string]*Driver `json:"drivers"`

	// Plugins is what the recording plugin was called for, for each start of the server that had it.
	Plugins []Plugins `json:"plugins"`

	Order     Order     `json:"order"`
	API       API       `json:"api"`
	Server    Server    `json:"server"`
	Metrics   Metrics   `json:"metrics"`
	Leftovers Leftovers `json:"leftovers"`
	Second    Second    `json:"second"`

	// Timeline lists what was seen, in the order in which it happened.
	Timeline []Event `json:"timeline"`
	// Failures are the expectations that did not hold.
	Failures []Failure `json:"failures"`
}

// Plugins are the calls that the recording plugin got.
type Plugins struct {
	// Calls counts them by plugin, method and item, such as "recorder-v2 Execute ConfigMap app/a".
	Calls map[string]int `json:"calls"`
	// PeakInFlight is how many calls there were at once, at most.
	PeakInFlight int `json:"peakInFlight"`
	// Processes is how many processes the plugin had.
	Processes int `json:"processes"`
}

// Backup is one Velero backup.
type Backup struct {
	Phase  string        `json:"phase"`
	Phases []PhaseChange `json:"phases"`
	// FailureReason is status.failureReason.
	FailureReason    string   `json:"failureReason"`
	ValidationErrors []string `json:"validationErrors"`
	// Terminal is true when the backup reached a phase that it never leaves.
	Terminal bool `json:"terminal"`
	// Errors and Warnings are Velero's own counts from the backup's status.
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// CreatedAt is when the Backup object was created.
	CreatedAt float64 `json:"createdAt"`
	// SecondsInProgress runs from the change to InProgress to the change away from it.
	SecondsInProgress float64 `json:"secondsInProgress"`
	// SecondsFinishing runs from the change away from InProgress to the last phase; 0 for a backup that was never in
	// progress.
	SecondsFinishing float64 `json:"secondsFinishing"`
	// SecondsToTerminal runs from the creation of the Backup object to its last phase.
	SecondsToTerminal float64 `json:"secondsToTerminal"`
	ItemsBackedUp     int     `json:"itemsBackedUp"`
	TotalItems        int     `json:"totalItems"`
	// PVCs are the claims that this backup made a VolumeSnapshot of, keyed "namespace/name".
	PVCs map[string]*PVC `json:"pvcs"`
	// Cuts and Ready count the claims in PVCs that got a handle in time, and that became ready to use.
	Cuts  int `json:"cuts"`
	Ready int `json:"ready"`
	// Tarball lists the files in the backup's archive.
	Tarball []string `json:"tarball"`
	// LogErrors and LogWarnings are the lines of the backup's log at these levels.
	LogErrors   []string `json:"logErrors"`
	LogWarnings []string `json:"logWarnings"`
	// ResultErrors and ResultWarnings are the messages in the backup's results file.
	ResultErrors   []string `json:"resultErrors"`
	ResultWarnings []string `json:"resultWarnings"`
}

// PhaseChange is a phase and when it was first seen.
type PhaseChange struct {
	Phase string  `json:"phase"`
	At    float64 `json:"at"`
}

// Verdicts on a PVC in a backup.
const (
	// VerdictReady means that the snapshot became ready to use.
	VerdictReady = "ready"
	// VerdictCut means that a handle was there, but the snapshot never became ready to use.
	VerdictCut = "cut"
	// VerdictFailed means that no handle appeared in time, and the snapshot was removed or reported an error.
	VerdictFailed = "failed"
	// VerdictPending means that no handle appeared, without any error, and the VolumeSnapshot is still there.
	VerdictPending = "pending"
)

// PVC is what happened to one claim in one backup. When a backup made several VolumeSnapshots of a claim, the times are
// those of the last.
type PVC struct {
	// Pods are the pods that mount the claim, "namespace/name".
	Pods   []string `json:"pods"`
	Hooked bool     `json:"hooked"`
	Driver string   `json:"driver"`
	// VolumeSnapshot is the name of the (last) VolumeSnapshot.
	VolumeSnapshot string `json:"volumeSnapshot"`
	// Attempts counts the VolumeSnapshots that the backup made of the claim.
	Attempts  int     `json:"attempts"`
	CreatedAt float64 `json:"createdAt"`
	CutAt     float64 `json:"cutAt"`
	ReadyAt   float64 `json:"readyAt"`
	DeletedAt float64 `json:"deletedAt"`
	// TooLate is true when the handle came after the deletion of the VolumeSnapshot was asked for, or after the backup's
	// last phase. Such a cut counts as none.
	TooLate bool `json:"tooLate"`
	// CutSeconds runs from the creation of the VolumeSnapshot to its handle.
	CutSeconds float64 `json:"cutSeconds"`
	// Calls counts the CreateSnapshot calls that the driver got for this VolumeSnapshot.
	Calls int `json:"calls"`
	// CallStartedAt is the start of the first CreateSnapshot call, CallEndedAt the end of the first that succeeded, or of
	// the last when none did.
	CallStartedAt float64 `json:"callStartedAt"`
	CallEndedAt   float64 `json:"callEndedAt"`
	// DriverSeconds is how long the longest of these calls took inside the driver.
	DriverSeconds float64 `json:"driverSeconds"`
	// DriverCut is true when the driver said that it took the snapshot.
	DriverCut bool   `json:"driverCut"`
	Verdict   string `json:"verdict"`
	// Error is the last error that the VolumeSnapshot or its content reported.
	Error string `json:"error"`
	// Uploads counts the DataUploads that the backup made of the claim; time and phase are those of one of them.
	Uploads         int     `json:"uploads"`
	UploadCreatedAt float64 `json:"uploadCreatedAt"`
	UploadPhase     string  `json:"uploadPhase"`
}

// Pod is what happened to one pod of the workload.
type Pod struct {
	Hooked bool `json:"hooked"`
	// PVCs are the claims that the pod mounts, "namespace/name".
	PVCs []string `json:"pvcs"`
	// PreHooks and PostHooks count the commands that ran in the pod.
	PreHooks  int `json:"preHooks"`
	PostHooks int `json:"postHooks"`
	// Thawed is false when a pre hook ran that no post hook followed.
	Thawed bool `json:"thawed"`
	// Windows are the pod's freeze windows in order; two backups freeze a pod twice.
	Windows []Window `json:"windows"`
	// FreezeSeconds is the length of the longest window.
	FreezeSeconds float64 `json:"freezeSeconds"`
	// SlowestCutSeconds is the longest PVC.CutSeconds, and SlowestDriverSeconds the longest PVC.DriverSeconds, of the
	// pod's claims over all backups.
	SlowestCutSeconds    float64 `json:"slowestCutSeconds"`
	SlowestDriverSeconds float64 `json:"slowestDriverSeconds"`
	// CallSpreadSeconds runs from the start of the first to the start of the last first CreateSnapshot call for the
	// pod's claims, the largest over all backups.
	CallSpreadSeconds float64 `json:"callSpreadSeconds"`
	// CallsOutsideWindow counts the snapshots of the pod's claims whose first successful CreateSnapshot call did not lie
	// between the end of the last pre hook and the start of the first post hook of one window. Always zero for a pod
	// without hooks.
	CallsOutsideWindow int `json:"callsOutsideWindow"`
	// FileSystemBackups are the PodVolumeBackups of the pod, in the order of their creation.
	FileSystemBackups []FileSystemBackup `json:"fileSystemBackups"`
}

// FileSystemBackup is one PodVolumeBackup.
type FileSystemBackup struct {
	Backup string `json:"backup"`
	// Volume is the name that the volume has in its pod.
	Volume    string  `json:"volume"`
	CreatedAt float64 `json:"createdAt"`
	// EndedAt is when it was seen in its last phase; zero when it never was.
	EndedAt float64 `json:"endedAt"`
	Phase   string  `json:"phase"`
}

// Window is one freeze window of a pod, as the kubelet stand-in saw it.
type Window struct {
	// StartedAt is the start of the first pre hook, FrozenAt the end of the last.
	StartedAt float64 `json:"startedAt"`
	FrozenAt  float64 `json:"frozenAt"`
	// ThawingAt is the start of the first post hook, EndedAt the end of the last. Zero when there was none.
	ThawingAt float64 `json:"thawingAt"`
	EndedAt   float64 `json:"endedAt"`
	Seconds   float64 `json:"seconds"`
}

// Order says what kept its place and what did not.
type Order struct {
	// LastThawAt is when the last hooked pod's last post hook of the first backup ended.
	LastThawAt float64 `json:"lastThawAt"`
	// FirstPlainCallAt is the start of the first CreateSnapshot call for a volume that no hooked pod mounts.
	FirstPlainCallAt float64 `json:"firstPlainCallAt"`
	// PlainCallsWhileFrozen counts the CreateSnapshot calls for such volumes that started while a pod was frozen.
	PlainCallsWhileFrozen int `json:"plainCallsWhileFrozen"`
	// PlainCallsBeforeThaw counts those that started before LastThawAt.
	PlainCallsBeforeThaw int `json:"plainCallsBeforeThaw"`
	// MostFrozenPods is how many pods were frozen at the same time, at most.
	MostFrozenPods int `json:"mostFrozenPods"`
}

// Driver is what one CSI driver saw after the floor.
type Driver struct {
	// Creates and Deletes count the calls, Failed those of them that returned an error.
	Creates int `json:"creates"`
	Deletes int `json:"deletes"`
	Failed  int `json:"failed"`
	// Throttled counts the calls that the driver refused because they came too fast. They count in Failed, too.
	Throttled int `json:"throttled"`
	// PeakInFlight is the largest number of CreateSnapshot calls that overlapped.
	PeakInFlight int `json:"peakInFlight"`
	// Snapshots counts the physical snapshots that exist at the end.
	Snapshots int `json:"snapshots"`
}

// API counts the requests that the Velero server made to the API server from the creation of the first backup to the
// last phase of the last one.
type API struct {
	Total int `json:"total"`
	// PerPVC is Total divided by Result.Volumes.
	PerPVC float64 `json:"perPVC"`
	// ByVerb is keyed "get", "list", "watch", "create", ...
	ByVerb map[string]int `json:"byVerb"`
	// ByResource is keyed "resource.group" or "resource.group/subresource", and "nonResource" for other paths.
	ByResource map[string]int `json:"byResource"`
	// Requests is keyed "verb resource.group".
	Requests map[string]int `json:"requests"`
	// Forbidden has those of Requests that RBAC refused, since the server's first start.
	Forbidden map[string]int `json:"forbidden"`
	// Throttled counts the answers with code 429.
	Throttled int `json:"throttled"`
	// Faults is what the scenario's api events did, for all clients together. Requests that they answered never reached the
	// API server and are not in the other numbers.
	Faults APIFaults `json:"faults"`
}

// APIFaults counts what went wrong with the API on purpose.
type APIFaults struct {
	// Answered counts the requests that got an error, and Slowed those that had to wait.
	Answered int `json:"answered"`
	Slowed   int `json:"slowed"`
	// CutWatches counts the watches that were ended, ExpiredWatches those that were then told to be too old.
	CutWatches     int `json:"cutWatches"`
	ExpiredWatches int `json:"expiredWatches"`
}

// Metrics are the server's own figures, read from its /metrics four times a second from the first backup until the cluster
// is at rest: what lasts less than a quarter of a second may be missed. Only the families velero_csi_... and
// velero_hook_... are in it. The keys are written name{label="value",other="value"}, labels in order, without braces where there is
// none; a histogram has two, with _count and _sum behind its name. What is infinite, such as a limit that there is not, is left out.
type Metrics struct {
	// Samples is how often the metrics were read.
	Samples int `json:"samples"`
	// Final are the values that were read last, of the server that ran last.
	Final map[string]float64 `json:"final"`
	// Peaks are the largest values that were seen.
	Peaks map[string]float64 `json:"peaks"`
}

// Server is the life of the Velero server.
type Server struct {
	Starts int `json:"starts"`
	// Exits lists every end of the server process, also those that the scenario asked for.
	Exits []Exit `json:"exits"`
	// UnexpectedExits counts the exits that no step or event asked for.
	UnexpectedExits int `json:"unexpectedExits"`
	// PeakMemoryBytes is the largest resident size over all starts.
	PeakMemoryBytes int `json:"peakMemoryBytes"`
	// PeakMemoryBytesByStart is the largest resident size of each start, in their order.
	PeakMemoryBytesByStart []int `json:"peakMemoryBytesByStart"`
	// DataRaces counts the reports of the race detector in the server's output.
	DataRaces int `json:"dataRaces"`
	// Started is true when the server became ready at least once.
	Started bool `json:"started"`
	// StartError is why it did not, with the end of its log.
	StartError string `json:"startError"`
	// LogDir is where the logs are when they were kept.
	LogDir string `json:"logDir"`
}

// Exit is one end of the server process.
type Exit struct {
	At       float64 `json:"at"`
	Status   string  `json:"status"`
	Expected bool    `json:"expected"`
}

// Leftovers is what no backup owns, counted after the cluster came to rest.
type Leftovers struct {
	// VS and VSC count VolumeSnapshots and VolumeSnapshotContents that backups made.
	VS  int `json:"vs"`
	VSC int `json:"vsc"`
	// FreezeRecords counts the notes about frozen pods that nobody cleared.
	FreezeRecords int `json:"freezeRecords"`
	// DriverSnapshotsWithoutOwner counts the physical snapshots that neither a VolumeSnapshotContent in the cluster
	// nor a backup in the object store refers to.
	DriverSnapshotsWithoutOwner int `json:"driverSnapshotsWithoutOwner"`
	Total                       int `json:"total"`
	// Names says which they are.
	Names []string `json:"names"`
	// AtTerminal is how many VolumeSnapshots and contents were still there when the last backup reached its last phase.
	AtTerminal int `json:"atTerminal"`
	// SettleSeconds is how long it took from there until nothing changed any more.
	SettleSeconds float64 `json:"settleSeconds"`
}

// Restore is one restore that a step asked for.
type Restore struct {
	Phase    string  `json:"phase"`
	Errors   int     `json:"errors"`
	Warnings int     `json:"warnings"`
	Seconds  float64 `json:"seconds"`
	// PVCs maps the restored claims, "namespace/name", to the VolumeSnapshot that their dataSource names.
	PVCs map[string]string `json:"pvcs"`
	// VS and VSC count the objects that the restore made.
	VS  int `json:"vs"`
	VSC int `json:"vsc"`
	// ResultErrors are the messages in the restore's results file.
	ResultErrors []string `json:"resultErrors"`
}

// Deletion is one deletion of a backup.
type Deletion struct {
	// Gone is true when the Backup object disappeared.
	Gone    bool     `json:"gone"`
	Errors  []string `json:"errors"`
	Seconds float64  `json:"seconds"`
	// SnapshotsBefore and SnapshotsAfter count the physical snapshots at all drivers.
	SnapshotsBefore int `json:"snapshotsBefore"`
	SnapshotsAfter  int `json:"snapshotsAfter"`
	// Earlier are the deletions of the same backup that left it there, in order.
	Earlier []Deletion `json:"earlier"`
}

// Command is one run of the Velero command line.
type Command struct {
	ExitStatus int `json:"exitStatus"`
	// Output is what it wrote to the standard output, and then what it wrote to the standard error.
	Output string `json:"output"`
	// Fields are those of a JSON object on the standard output, by their paths, such as "status.phase" or "items.0.name".
	Fields map[string]string `json:"fields"`
	// Files are those that it made in its working folder; for an archive (.tar.gz), with the names of the files in it.
	Files map[string][]string `json:"files"`
}

// Second is what was seen in the second cluster. What steps did there stands in Restores, Deletions and Commands of the result.
type Second struct {
	// Backups are those that its server took or found in the object store, as far as the cluster tells of them.
	Backups map[string]*Backup `json:"backups"`
	// VS and VSC are counted at the end, like the leftovers of the first cluster.
	VS  int `json:"vs"`
	VSC int `json:"vsc"`
	// UnexpectedExits are those of its server.
	UnexpectedExits int `json:"unexpectedExits"`
}

// Event is one line of the timeline.
type Event struct {
	At float64 `json:"at"`
	// Kind is one of the Kind constants.
	Kind string `json:"kind"`
	// Object is what it happened to: "namespace/name", a backup's name, "server".
	Object  string `json:"object"`
	Message string `json:"message"`
}

// Kinds of timeline events.
const (
	KindBackup   = "backup"
	KindRestore  = "restore"
	KindSnapshot = "snapshot"
	KindDriver   = "driver"
	KindHook     = "hook"
	KindServer   = "server"
	KindScenario = "scenario"
)
