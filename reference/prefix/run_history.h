// Runs a prefix case on an implementation beside what the judge knows, and judges every clause of
// contract.md after every operation. The implementation is asked in this process; one in another
// process is a PrefixImplementation like any other.

#ifndef REFERENCE_PREFIX_RUN_HISTORY_H_
#define REFERENCE_PREFIX_RUN_HISTORY_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/prefix/folder.h"
#include "reference/prefix/history_result.h"
#include "reference/prefix/ledger.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

struct HistoryOptions {
  // Every request is read after every operation, whatever the case says.
  bool observe_each = false;
  // Called with the index of an operation before it, and with the number of operations before what
  // follows them.
  std::function<void(int64_t)> on_operation{};
  // Rows that a hit or a read shows, before they are judged, and of how many tokens.
  std::function<void(const PrefixRows&, int64_t)> on_rows{};
};

class HistoryRunner {
 public:
  // The implementation outlives this. Keeps its memory from history to history.
  explicit HistoryRunner(PrefixImplementation* implementation);

  // Errors: ImplementationLoss of the implementation, what on_operation throws, kUnreadableFile
  // where there is no place for a folder, kIllegalCase.
  HistoryResult Run(const PrefixCase& c, const HistoryOptions& options = {});
  // After a call of Run that threw. Why what was to be written to the folder may not have been: the
  // implementation says so, or what its store may hold would not fit there. "": there is room.
  std::string WhyNoRoom() const;
  void DropFolder() { folder_.reset(); }

 private:
  struct Request {
    bool open = false;
    std::vector<int32_t> prompt;
    PrefixIdentity who;
    int32_t who_index = 0;
    bool all = false;
    NodePath prompt_path;         // of the whole prompt
    NodePath path;                // of the tokens that it has
    std::vector<int32_t> got_by;  // the operation that brought each of them
    int64_t hit = 0;              // tokens of it that were found
    int64_t shared = 0;           // of these, what has its room with what is kept
    int64_t epoch = 0;
    // The weights changed before it had a token: it goes on under the new ones.
    bool crossed = false;
    bool trimmed = false;
    bool forked = false;
    bool cut = false;  // its last write ended inside a block
    // Of tokens that were shown otherwise than they were written (codes): as they were shown first.
    std::map<int64_t, std::vector<std::byte>> shown;
  };
  struct LastOpen {
    NodePath path;
    bool all = false;
    int64_t hit = 0;
    // What it holds leaves no room for all that is kept, each counted alone: a store that copies
    // what it finds may have evicted for it.
    bool took_room = false;
  };

  // run_history_operations.cc. Each ends with the failure set, or without.
  void Do(const PrefixOp& op);
  void SetPromptPath(Request* request);  // under the present epoch
  void DoOpen(const PrefixOp& op);
  void DoWrite(const PrefixOp& op);
  void DoClose(const PrefixOp& op);
  void DoFork(const PrefixOp& op);
  void DoTrimTo(const PrefixOp& op);
  void DoEvict(const PrefixOp& op);
  void DoClear(const PrefixOp& op);
  void DoEpoch(const PrefixOp& op);
  void DoSettle(const PrefixOp& op);
  void DoSave(const PrefixOp& op);
  void DoLoad(const PrefixOp& op);
  void DoDamage(const PrefixOp& op);
  void Restart(const PrefixSetup& setup, bool orderly);
  void CloseAll();
  void FinishEpoch();
  // After the last operation: everything is closed and cleared, and the whole capacity used.
  void Epilogue();
  void Conclude();

  // Calls f, which may be killed at a write. legal: whether it may be carried out; declinable:
  // whether it may be refused all the same. True: it was carried out to its end.
  template <typename F>
  bool Call(const PrefixOp& op, bool legal, bool declinable, F f);
  bool Judged(const OpResult& result, const PrefixOp& op, bool legal, bool declinable);
  void Fail(HistoryFault fault, std::string text, int request = -1);
  bool failed() const { return result_.failure.fault != HistoryFault::kNone; }
  Request& At(int request) { return requests_[static_cast<size_t>(request)]; }
  void Forget(Request* request);  // closed: nothing of it is held any more
  int64_t HeldTokens() const;     // of all requests, in whole blocks
  bool AnyOpen() const;
  int64_t MostLive(const NodePath& path) const;
  int64_t TokensToWrite(const PrefixOp& op, const Request& request,
                        std::vector<int32_t>* tokens) const;
  void FillVectors(const NodePath& path, WrongVectors wrong, PrefixVectors* vectors);

  // run_history_checks.cc
  void CheckHit(const PrefixOp& op, Request* request, const PrefixHit& hit, int64_t due,
                int64_t most);
  // got: rows of the first `count` tokens of the path. Fails, or takes down what was shown.
  void CheckRows(int request, const NodePath& path, const PrefixRows& got, int64_t count);
  bool HasShape(const PrefixVectors& vectors, int64_t count) const;
  void CheckToken(int request, const NodePath& path, const PrefixRows& got, int64_t count,
                  int64_t token);
  bool IsWithinBound(const std::byte* want, const std::byte* got, TokenPart part);
  void CheckRead(int request);
  // Every open request and the counters, as they are after the operation that names `own`.
  void CheckState(const std::vector<int>& own);
  void CheckCounters();

  // run_history_probes.cc
  void Reach(HistoryProbe probe, bool reached = true) {
    result_.probes[static_cast<size_t>(probe)] += static_cast<int64_t>(reached);
  }
  void ProbeBefore(const PrefixOp& op);
  void ProbeOpen(const Request& request, const PrefixHit& hit);
  void ProbeWritten(const Request& request, int64_t from);
  void ProbeClosed(const Request& request, bool keep);

  PrefixImplementation* implementation_;
  PrefixCapabilities capabilities_;
  PrefixSetup setup_;
  PrefixStarted started_;
  std::unique_ptr<PrefixFolder> folder_;
  Ledger ledger_;
  std::array<Request, kRequests> requests_;
  std::optional<LastOpen> last_open_;
  HistoryResult result_;
  const PrefixCase* case_ = nullptr;
  HistoryOptions options_;
  int64_t operation_ = -1;
  bool killed_ = false;        // the last call ended in a kill
  int64_t written_bytes_ = 0;  // by the case, to requests
  std::string no_room_;        // why what failed proves nothing
  struct Saved {
    bool is_there = false;
    bool perhaps = false;  // a save of it was killed, or damage may have met it
    int64_t epoch = 0;
    int64_t block_tokens = 0;
    DType x = DType::kFloat32;
    int64_t clears = 0;
  };
  std::array<Saved, kSavedStores> saved_;
  int64_t clears_ = 0;
  bool flipped_ = false;        // a bit of a file, which may be served
  bool files_damaged_ = false;  // since the last start of a process
  bool coarse_ = false;         // a bound as wide as contents are apart
  bool wrong_tier_ = false;
  // Since the last start of a process.
  int64_t opens_ = 0;
  int64_t hits_ = 0;
  int64_t hit_tokens_ = 0;
  int64_t free_at_start_ = PrefixCounters::kUnknown;
  std::vector<int64_t> ids_;  // of all open requests, as they were read last
  bool ids_known_ = true;
  bool shows_ids_ = false;  // it has shown blocks
  int64_t bytes_at_start_ = PrefixCounters::kUnknown;
  // Of probes.
  bool evicted_ = false;
  bool cleared_ = false;
  bool damaged_ = false;
  bool restarted_ = false;
  bool was_killed_ = false;
  std::vector<NodePath> forgotten_;  // kept before the last clear or epoch
  std::vector<NodePath> unkept_;
  bool forgot_by_epoch_ = false;
  // Memory of a write.
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
};

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_RUN_HISTORY_H_
