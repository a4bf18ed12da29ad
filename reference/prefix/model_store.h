// The reference store: blocks with content, looked up by what the contract says they are, the key
// of everything before them and their own tokens. No hash stands for a key. Slow and obvious; built
// of the rules of rules.h.
//
// Blocks of a request are its own until it is closed; whole ones of a kept request may then hit.
// Nobody holds more than one copy of a kept block. Least recently used blocks go first. A disk tier
// holds a record a kept block, written by close, with its key, its setup and a hash; a damaged or
// foreign one is a miss. It lives in this object in place of files.

#ifndef REFERENCE_PREFIX_MODEL_STORE_H_
#define REFERENCE_PREFIX_MODEL_STORE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/cache/vector_codec.h"
#include "reference/prefix/rules.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

class ModelStore : public PrefixImplementation {
 public:
  explicit ModelStore(PrefixRules rules = {}, std::string name = "model");

  // How often a replaced rule made a difference.
  int64_t Hits() const { return rules_.hits->load(); }

  PrefixCapabilities GetCapabilities() const override;
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
  OpResult Settle() override { return {}; }
  OpResult Save(int key) override;
  OpResult Load(int key) override;
  bool KillAtWrite(int64_t write) override;
  OpResult Damage(FileDamage damage, int64_t at) override;
  void Observe(PrefixCounters* counters) override;

 private:
  // What nobody wrote: NaN in every channel of every type.
  static constexpr std::byte kUnwritten{0xff};

  struct Block {
    int64_t refs = 0;
    int64_t key = -1;  // -1: not published
    int64_t used = 0;
    bool coded = false;  // its rows, or some of them, are what codes stand for
    std::vector<std::byte> rows;
  };
  struct Request {
    bool open = false;
    int64_t root = 0;
    int64_t epoch = 0;
    int64_t tokens = 0;
    int64_t longest = 0;
    std::vector<int32_t> ids;     // tokens, trimmed ones after the first `tokens` too
    std::vector<int64_t> blocks;  // ids of blocks
  };
  using Files = std::map<int64_t, std::string>;  // records by name
  struct SavedStore {
    bool is_there = false;
    std::string setup;
    int64_t epoch = 0;
    std::vector<std::pair<int64_t, std::vector<std::byte>>> blocks;  // by recency
  };

  // model_store.cc
  void StartProcess(const PrefixSetup& setup, PrefixStarted* started);
  bool IsRefused(PrefixOpKind kind, bool legal, std::string_view why);
  OpResult Refusal() const { return OpResult::Refuse(message_); }
  RowsOfTokens RowsOf(Block* block, int64_t first, int64_t tokens, int64_t position);
  void Gather(const Request& request, int64_t tokens, PrefixRows* rows);
  void CopyIn(Request* request, int64_t token, const PrefixVectors& vectors, int64_t from);
  void Publish(Request* request, bool keep);
  void StoreInCodes(const RowsOfTokens& rows);
  bool Does(PublishEvent event, bool does) const;
  bool Does(ForgetEvent event) const;

  // model_store_blocks.cc
  int64_t Intern(const std::string& text);
  int64_t RootKey(const PrefixIdentity& who);
  int64_t KeyOf(int64_t root, int64_t before, int64_t index, std::span<const int32_t> tokens);
  // Keys of the whole blocks of these tokens, in turn.
  std::vector<int64_t> KeysOf(int64_t root, std::span<const int32_t> tokens);
  int64_t Find(int64_t key) const;  // the block that is published under it; -1: none
  void Pin(int64_t block, RefEvent event);
  void Release(int64_t block, RefEvent event);
  int64_t FreeCount() const;
  int64_t EvictableCount() const;
  bool EvictOne();
  int64_t Take();  // a free block, evicting where there is none; -1: there is no room
  bool MayEvict(const Block& block) const;
  bool IsFree(const Block& block) const { return block.refs <= 0 && block.key < 0; }
  void Unpublish(Block* block);

  // model_store_disk.cc
  std::string SetupText() const;
  std::string Record(int64_t key, const std::vector<std::byte>& rows) const;
  bool ReadRecord(const std::string& record, int64_t key, std::vector<std::byte>* rows) const;
  bool Accepts(FileFault fault) const;
  int64_t FileName(int64_t key) const;
  void WriteFile(int64_t key, const std::vector<std::byte>& rows);
  bool HasFile(int64_t key) const;  // one that can be read
  // Every write to the folder is counted; the last one before a kill is half done.
  bool IsLastWrite();
  void CountWrite();

  PrefixRules rules_;
  std::string name_;
  PrefixSetup setup_;
  std::optional<RowLayout> layout_;
  std::array<Request, kRequests> requests_;
  std::vector<Block> blocks_;
  std::map<std::string, int64_t> keys_;
  std::map<int64_t, int64_t> index_;  // key to block
  Files files_;
  std::array<SavedStore, kSavedStores> saved_;
  int64_t epoch_ = 0;
  int64_t process_ = 0;
  int64_t clock_ = 0;
  int64_t kill_at_ = 0;
  int64_t shortest_ = 0;
  PrefixCounters counters_;
  std::string message_;
  std::optional<VectorCodec> k_codec_;
  std::optional<VectorCodec> v_codec_;
  // Of the rows shown last.
  std::vector<std::byte> tokens_;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
};

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_MODEL_STORE_H_
