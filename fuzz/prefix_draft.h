// A prefix case while it is drawn: operations so far, what requests are open and which prompts
// there have been, and the moves, each of which adds an operation or a few.

#ifndef FUZZ_PREFIX_DRAFT_H_
#define FUZZ_PREFIX_DRAFT_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "reference/data/generator.h"
#include "reference/spec/prefix_case.h"
#include "reference/spec/prefix_space.h"

namespace kvcheck {

class PrefixDraft {
 public:
  PrefixDraft(const PrefixSpace& space, std::span<const KvFormat> formats, int64_t max_operations,
              Generator* random)
      : space_(space), formats_(formats), max_operations_(max_operations), random_(random) {}
  PrefixCase Draw();

 private:
  using Tokens = std::vector<int32_t>;
  struct Prompt {
    Tokens tokens;
    int who = 0;
  };
  struct OpenRequest {
    bool open = false;
    Tokens tokens;        // of its prompt and what followed, written or not
    int64_t written = 0;  // at least: a hit may have brought more
    int who = 0;
  };
  using Move = void (PrefixDraft::*)();
  struct Weighted {
    int weight;
    Move move;
    bool disk;       // makes sense with a disk alone
    uint32_t needs;  // bit per PrefixOpKind
  };
  static const std::initializer_list<Weighted>& Moves();

  void DrawSetup();
  void DrawIdentities();
  void DrawMove();

  // prefix_draft.cc: one operation
  void MoveOpen();
  void MoveWrite();
  void MoveMore();
  void MoveClose();
  void MoveFork();
  void MoveTrim();
  void MoveEvict();
  void MoveClear();
  void MoveEpoch();
  void MoveLook();
  void MoveIllegal();
  void MoveAnything();
  // prefix_draft_moves.cc: several operations
  void MoveStore();
  void MoveFetch();
  void MoveOtherIdentity();
  void MoveEqualBlock();
  void MoveSplit();
  void MoveTwice();
  void MoveForkBoth();
  void MoveTrimAndKeep();
  void MoveFill();
  void MoveForget();
  void MoveRevive();
  void MoveRestart();
  void MoveKill();
  void MoveDamage();
  void MoveSaveLoad();

  uint64_t Below(uint64_t count) { return random_->Below(count); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t Int(int64_t low, int64_t high) { return random_->Between(low, high); }
  bool Has(PrefixOpKind kind) const { return space_.Has(kind); }
  bool IsFull() const { return std::ssize(case_.ops) >= length_; }

  // Stays valid until Draw returns; null: no room, or not there.
  PrefixOp* Add(PrefixOpKind kind);
  int FreeRequest();  // or any, where none is free
  int UsedRequest();  // -1: none
  int Who() { return static_cast<int>(Below(identities_.size())); }
  // A cut of an earlier prompt, and some tokens more.
  Prompt DrawPrompt();
  Tokens DrawTokens(int64_t count);
  int32_t OtherLetter(int32_t letter);
  // Adds an open; the request's number, -1 where there is no room.
  int AddOpen(Tokens tokens, int who);
  void AddWrite(int request, std::optional<int64_t> count = {});
  void AddClose(int request, bool keep);
  // Open, write all, close and keep.
  void AddStored(const Tokens& tokens, int who);
  void DrawKill(PrefixOp* op);

  const PrefixSpace& space_;
  std::span<const KvFormat> formats_;
  int64_t max_operations_;
  Generator* random_;
  PrefixCase case_;
  int64_t length_ = 0;
  std::vector<int32_t> letters_;  // the ids that prompts are made of
  std::vector<PrefixIdentity> identities_;
  std::vector<Prompt> prompts_;
  std::array<OpenRequest, kRequests> requests_;
};

}  // namespace kvcheck

#endif  // FUZZ_PREFIX_DRAFT_H_
