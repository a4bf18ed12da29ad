// A prefix cache in a process of its own, asked over the process protocol (protocol.md, kind
// prefix). Its folder is the caller's: the process is ended, or killed, and another one started on
// it. What is sent and received crosses as arrays; nothing here judges.

#ifndef TOOLS_PROCESS_REMOTE_PREFIX_H_
#define TOOLS_PROCESS_REMOTE_PREFIX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/spec/prefix_implementation.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

class RemotePrefix : public PrefixImplementation {
 public:
  // process: nobody else uses it between a Start and the last call that follows.
  explicit RemotePrefix(std::shared_ptr<RemoteProcess> process) : process_(std::move(process)) {}

  // Errors of all: RemoteLoss.
  PrefixCapabilities GetCapabilities() const override;
  bool UsesFolder() const override { return true; }
  OpResult Start(const PrefixSetup& setup, const std::string& folder,
                 PrefixStarted* started) override;
  OpResult Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) override;
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override;
  OpResult Write(int request, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                 bool* full) override;
  OpResult Read(int request, PrefixRows* rows) override;
  OpResult Close(int request, bool keep) override;
  OpResult Fork(int request, int out) override;
  OpResult TrimTo(int request, int64_t tokens) override;
  OpResult Evict(int64_t tokens) override;
  OpResult Clear() override;
  OpResult Epoch() override;
  OpResult Settle() override;
  OpResult Save(int key) override;
  OpResult Load(int key) override;
  // A process cannot be stopped at a write that nobody sees: it is killed some time after it was
  // sent the request, the later the larger the number.
  bool KillAtWrite(int64_t write) override;
  std::string Unwritten() const override { return process_->no_room(); }
  void Observe(PrefixCounters* counters) override;

 private:
  OpResult Begin(const PrefixSetup& setup, bool again, PrefixStarted* started);
  // Sends what was begun. on_ok(answer): where it was carried out.
  template <typename F>
  OpResult Finish(F on_ok);
  OpResult Finish();
  OpResult StatusOf(const WireValue& answer);
  WireWriter& BeginOf(std::string_view name, int request);
  void ReadRows(const WireValue& answer, int64_t tokens, PrefixRows* rows);

  std::shared_ptr<RemoteProcess> process_;
  PrefixSetup setup_;
  std::string folder_;
  int64_t kill_at_ = 0;
  std::string message_;
  // Of the rows shown last.
  std::shared_ptr<const Message> bytes_;
  std::vector<int64_t> blocks_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_PREFIX_H_
