//! Group commit: callers join a line, the first of them writes for all who wait, the rest sleep until told.
//!
//! While a group is being written the next one forms, so a slow disk makes groups larger rather than writers slower.
//!
//! - C1: order of arrival is order of writing, within a group and between groups. Nobody overtakes.
//! - C2: the core (what only the leader touches) is in the line, or with exactly one leader. Whoever puts it back
//!   tells the first in line. Nobody takes it before that one does, but one who comes meanwhile and writes for all who wait, and then for
//!   itself: who was told has yet to wake up, and on busy processors all would queue up behind it.
//! - C3: everyone in line is told to lead, or once what became of the request. Who is told to lead and may not waits on; being
//!   told so late, by who looked before, never takes the place of an answer.
//! - C4: a panic of a leader leaves the core in a state nobody knows. All who wait and all who come are refused;
//!   only [`CommitQueue::exclusive`] still gets in, to close what can be closed.
//!
//! - C5: if what it waits for is brief, whoever waits looks out for news for about two microseconds, and then gives way to others between
//!   some more looks, before it sleeps: where a group is written in one, to be woken takes far longer than to wait.
//! - C6: of groups that [fly](CommitQueue::submit_and_finish) one does so at a time. Meanwhile the core stays where it is, and those who wait
//!   form a larger group; the first of them is told when it lands. Measured: of 16 writers that sync, one flight with patience (C7) writes a
//!   fifth more than two without, whose groups are half as large.
//! - C7: a leader who is [patient](Terms::is_patient), because what it is about to do takes long, first lets those come back
//!   who were there a moment ago, for as long as its `Patience` lasts, 50 µs: else they form two groups, which take turns at the device. It sleeps
//!   meanwhile, first in line and without the core, so that they find a processor, and whoever completes them has one: that one writes for all.
//! - C8: what takes microseconds is done by the leader, for all, before anybody else leads, even if it could be done beside the next group:
//!   to hand over costs more. A leader that goes on by itself waits for the one before it, and that one for a processor. Measured, puts of
//!   1 KiB into a `Db` by four threads on two processors, thousands a second: 210 where members insert for themselves, 240 where the leader
//!   does so beside the next group, 455 where it does so before it leaves; by one thread 390 to 580.
//!
//! Cost: alone, a request takes two short locks, allocates nothing and makes no system call. In company it costs one
//! small allocation and, unless the news come soon, one sleep and one wake-up; who waits for what is brief takes up to 50 µs of an idle
//! processor before. Model-checked in `tests/commit_model.rs`.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::{Condvar, Mutex, MutexGuard, Patience, give_way_for, look_for, thread_local, wait};
use crate::{Error, ErrorKind, Result};

/// What the line asks of a request that [flies](CommitQueue::submit_and_finish).
pub struct Terms<R> {
    /// What it weighs in its group.
    pub weigh: fn(&R) -> usize,
    /// Whether its leader first waits a little for those who were there a moment ago (C7).
    pub is_patient: fn(&R) -> bool,
    /// What a group weighs at most, but for its leader's own request.
    pub group_bytes_max: usize,
}

/// The line before one writer: `R` is a member's request, `L` what only the leader touches (the log writer and friends).
pub struct CommitQueue<R, L> {
    line: Mutex<Line<R, L>>,
}

struct Line<R, L> {
    /// `None` while somebody leads (C2).
    core: Option<Box<Core<R, L>>>,
    /// A leader panicked (C4).
    broken: bool,
    /// Whether a group is on its way (C6).
    is_flying: bool,
    /// How many were there when the last group was written: in it, and waiting (C7).
    crowd: usize,
    /// Whether the first in line waits for others (C7).
    is_patient: bool,
    waiting: VecDeque<Waiter<R>>,
}

struct Core<R, L> {
    lead: L,
    /// The group being written; empty between groups, kept for its memory.
    group: Vec<R>,
}

struct Waiter<R> {
    work: Work<R>,
    seat: Arc<Seat>,
    /// Where a request that was written goes back to.
    returned: Returned<R>,
}

type Returned<R> = Arc<Mutex<Option<R>>>;

/// Somebody of a group whom its leader must tell what became of it.
struct Member<R> {
    seat: Arc<Seat>,
    returned: Returned<R>,
}

enum Work<R> {
    Member { request: R, weight: usize },
    Alone,
}

/// What came of joining the line.
enum Turn<R, L> {
    /// The leader's own request is at `own` of the group, the others are the members', in their order.
    Lead {
        core: Box<Core<R, L>>,
        members: Vec<Member<R>>,
        own: usize,
    },
    Answered(Result<Option<R>>),
}

/// Where a thread sleeps. One per thread: it waits for one thing at a time.
#[derive(Default)]
struct Seat {
    told: Mutex<Option<Told>>,
    changed: Condvar,
    /// A hint for who has not gone to sleep: there is something in `told`.
    has_news: AtomicBool,
}

enum Told {
    Lead,
    Answer(Result<()>),
}

impl Seat {
    fn of_this_thread() -> Arc<Self> {
        thread_local! {
            static SEAT: Arc<Seat> = Arc::default();
        }
        // A thread that is ending has no locals left.
        SEAT.try_with(Arc::clone).unwrap_or_default()
    }

    /// As [`wait`](Self::wait), for as long as `patience` lasts.
    fn wait_for(&self, patience: &mut Patience) -> Option<Told> {
        let mut told = self.told.lock();
        while told.is_none() && patience.lasts() {
            told = patience.wait(&self.changed, &self.told, told);
        }
        let news = told.take();
        self.has_news.store(false, Ordering::Relaxed);
        news
    }

    /// `is_brief`: what it waits for takes microseconds (C5).
    fn wait(&self, is_brief: bool) -> Told {
        let has_news = || self.has_news.load(Ordering::Relaxed);
        if is_brief && !look_for(has_news) {
            give_way_for(has_news);
        }
        let mut told = self.told.lock();
        loop {
            match told.take() {
                Some(news) => {
                    self.has_news.store(false, Ordering::Relaxed);
                    return news;
                }
                None => told = wait(&self.changed, told),
            }
        }
    }

    fn tell(&self, news: Told) {
        let mut told = self.told.lock();
        if matches!((&*told, &news), (Some(Told::Answer(_)), Told::Lead)) {
            // Late news of an earlier wait (C3).
            return;
        }
        *told = Some(news);
        self.has_news.store(true, Ordering::Relaxed);
        drop(told);
        self.changed.notify_one();
    }
}

impl<R, L> Line<R, L> {
    /// The core, for who may lead now (C2, C6).
    fn take_core(&mut self) -> Option<Box<Core<R, L>>> {
        if self.is_flying { None } else { self.core.take() }
    }

    /// Whether it is too early to lead, with so many who come now and do not wait yet (C7).
    fn is_early(&self, is_patient: bool, coming: usize) -> bool {
        (is_patient || self.is_patient) && self.waiting.len() + coming < self.crowd
    }

    /// Nobody writes any more; returns those who wanted to and wait (C4).
    fn break_up(&mut self) -> VecDeque<Waiter<R>> {
        self.broken = true;
        self.is_patient = false;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (refused, stay) = waiting.partition(|waiter| matches!(waiter.work, Work::Member { .. }));
        self.waiting = stay;
        refused
    }

    fn is_first(&self, seat: &Arc<Seat>) -> bool {
        self.waiting.front().is_some_and(|first| Arc::ptr_eq(&first.seat, seat))
    }

    /// What all who wait weigh together; `None` if one of them wants to be alone.
    fn waiting_bytes(&self) -> Option<usize> {
        self.waiting.iter().try_fold(0usize, |sum, waiter| match &waiter.work {
            Work::Member { weight, .. } => Some(sum.saturating_add(*weight)),
            Work::Alone => None,
        })
    }

    /// Takes from the front of the line those whose weights fit with what the group has, `group_bytes`.
    fn gather(&mut self, group: &mut Vec<R>, mut group_bytes: usize, group_bytes_max: usize) -> Vec<Member<R>> {
        let mut members = Vec::new();
        while let Some(next) = self.waiting.pop_front() {
            match next {
                Waiter { work: Work::Member { request, weight }, seat, returned }
                    if group_bytes.saturating_add(weight) <= group_bytes_max =>
                {
                    group_bytes += weight;
                    group.push(request);
                    members.push(Member { seat, returned });
                }
                stays => {
                    self.waiting.push_front(stays);
                    break;
                }
            }
        }
        members
    }
}

impl<R: Send, L: Send> CommitQueue<R, L> {
    /// An empty line before `lead`.
    pub fn new(lead: L) -> Self {
        let core = Box::new(Core { lead, group: Vec::new() });
        Self {
            line: Mutex::new(Line {
                core: Some(core),
                broken: false,
                is_flying: false,
                crowd: 0,
                is_patient: false,
                waiting: VecDeque::new(),
            }),
        }
    }

    /// As [`submit_and_return`](Self::submit_and_return), for who does not need the request any more.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub fn submit(
        &self,
        request: R,
        weigh: fn(&R) -> usize,
        group_bytes_max: usize,
        run: impl FnOnce(&mut L, &mut Vec<R>) -> Result<()>,
    ) -> Result<()> {
        self.submit_and_return(request, weigh, |_| false, group_bytes_max, run, |_| Ok(())).map(drop)
    }

    /// Joins the line with `request` and returns when it was written, by this thread or another.
    ///
    /// Whoever is first in line leads, or who comes when nobody does: its `run` gets every request waiting at that moment, in their order, as long as
    /// their weights (as `weigh` says) sum up to `group_bytes_max` at most; its own is taken whatever
    /// it weighs. The result of `run` is the result of every member. What it leaves in the group goes back to the members, in
    /// their order, with what it changed in them: so each can go on by itself, while the next group is written.
    ///
    /// If `is_patient` says so of its request, the leader first waits a little for those who were there a moment ago (C7).
    ///
    /// Before they get them back, and once the next may lead, `settle` does for all what is better done by one.
    ///
    /// `run` and `settle` must not join the same line again: they would wait for themselves.
    ///
    /// # Errors
    /// What the leader's `run` or `settle` returned; `ReadOnly` if a leader panicked, now or earlier: what was written is unknown.
    ///
    /// # Panics
    /// Only if `run` or `settle` does: its panic goes on in this thread, after the others were told.
    pub fn submit_and_return(
        &self,
        request: R,
        weigh: fn(&R) -> usize,
        is_patient: fn(&R) -> bool,
        group_bytes_max: usize,
        run: impl FnOnce(&mut L, &mut Vec<R>) -> Result<()>,
        settle: impl FnOnce(&mut [R]) -> Result<()>,
    ) -> Result<Option<R>> {
        let (weight, is_patient) = (weigh(&request), is_patient(&request));
        let (mut core, members, own_at) =
            match self.enter(Work::Member { request, weight }, group_bytes_max, is_patient) {
                Turn::Lead { core, members, own } => (core, members, own),
                Turn::Answered(answer) => return answer,
            };
        match catch_unwind(AssertUnwindSafe(|| run(&mut core.lead, &mut core.group))) {
            Ok(result) if members.is_empty() => {
                let mut own = core.group.pop();
                self.leave(core, 1);
                result.and_then(|()| own.as_mut().map_or(Ok(()), |own| settle(std::slice::from_mut(own))))?;
                Ok(own)
            }
            Ok(result) => {
                let mut group = std::mem::take(&mut core.group);
                self.leave(core, 1 + members.len());
                let settled = catch_unwind(AssertUnwindSafe(|| result.and_then(|()| settle(&mut group))));
                let result = settled.as_ref().map_or_else(|_| Err(broken()), Result::clone);
                // `run` may have kept them.
                let mut group = group.drain(..);
                let (before, behind) = members.split_at(own_at.min(members.len()));
                let answer = |member: &Member<R>, request: Option<R>| {
                    *member.returned.lock() = request;
                    member.seat.tell(Told::Answer(result.clone()));
                };
                before.iter().for_each(|member| answer(member, group.next()));
                let own = group.next();
                behind.iter().for_each(|member| answer(member, group.next()));
                match settled {
                    Ok(result) => result.map(|()| own),
                    Err(panic) => resume_unwind(panic),
                }
            }
            Err(panic) => self.leave_broken(core, members, panic),
        }
    }

    /// As [`submit`](Self::submit), in two steps: `run` leads; what it made, `finish` gets with the requests of the group, and members
    /// are told after that.
    ///
    /// If `flies` says so of what `run` made, the group is on its way, and the next forms, until `finish` drops its [`Flight`]: nobody leads
    /// meanwhile (C6). What `finish` does after that is done beside the next group; whoever needs it in the order of the groups sees to it.
    /// Of a group that does not fly, all of it is done before anybody else leads (C8).
    ///
    /// # Errors
    /// What `run` or `finish` returned; `ReadOnly` as for [`submit`](Self::submit).
    ///
    /// # Panics
    /// As there. A panic of `finish` is one of a leader (C4).
    pub fn submit_and_finish<T>(
        &self,
        request: R,
        terms: &Terms<R>,
        run: impl FnOnce(&mut L, &[R]) -> Result<T>,
        flies: fn(&T) -> bool,
        finish: impl FnOnce(T, &[R], Option<Flight<'_, R, L>>) -> Result<()>,
    ) -> Result<()> {
        let (weight, is_patient) = ((terms.weigh)(&request), (terms.is_patient)(&request));
        let (mut core, members) = match self.enter(Work::Member { request, weight }, terms.group_bytes_max, is_patient)
        {
            Turn::Lead { core, members, .. } => (core, members),
            Turn::Answered(answer) => return answer.map(drop),
        };
        let made = match catch_unwind(AssertUnwindSafe(|| run(&mut core.lead, &core.group))) {
            Ok(made) => made,
            Err(panic) => self.leave_broken(core, members, panic),
        };
        let result = match made {
            Ok(made) if flies(&made) => {
                let group = std::mem::take(&mut core.group);
                let mut line = self.line.lock();
                line.crowd = group.len() + line.waiting.len();
                line.is_flying = true;
                hand_over(line, core);
                let flight = Flight { of: self };
                match catch_unwind(AssertUnwindSafe(|| finish(made, &group, Some(flight)))) {
                    Ok(result) => result,
                    Err(panic) => self.refuse_all(members, panic),
                }
            }
            made => {
                let finish = || made.and_then(|made| finish(made, &core.group, None));
                match catch_unwind(AssertUnwindSafe(finish)) {
                    Ok(result) => {
                        core.group.clear();
                        self.leave(core, 1 + members.len());
                        result
                    }
                    Err(panic) => self.leave_broken(core, members, panic),
                }
            }
        };
        for member in members {
            member.seat.tell(Told::Answer(result.clone()));
        }
        result
    }

    /// Why all who come are refused, if a leader panicked (C4).
    pub fn error(&self) -> Option<Error> {
        self.line.lock().broken.then(broken)
    }

    /// Runs alone, in its turn: rotation, recovery, close. Requests that came before are written before, later ones later.
    ///
    /// Runs even after a leader's panic; `run` then finds what that left behind.
    ///
    /// # Panics
    /// Only if `run` does, as for [`submit`](Self::submit).
    pub fn exclusive<T>(&self, run: impl FnOnce(&mut L) -> T) -> T {
        let mut core = loop {
            // Only requests are answered by others, so this goes round once.
            if let Turn::Lead { core, .. } = self.enter(Work::Alone, 0, false) {
                break core;
            }
        };
        match catch_unwind(AssertUnwindSafe(|| run(&mut core.lead))) {
            Ok(made) => {
                self.leave(core, 0);
                made
            }
            Err(panic) => self.leave_broken(core, Vec::new(), panic),
        }
    }

    /// How many are in line behind whoever leads now.
    pub fn waiting_count(&self) -> usize {
        self.line.lock().waiting.len()
    }

    /// Waits for a turn to lead, or for the answer of another leader.
    fn enter(&self, mut work: Work<R>, group_bytes_max: usize, is_patient: bool) -> Turn<R, L> {
        let mut line = self.line.lock();
        if line.broken && matches!(work, Work::Member { .. }) {
            return Turn::Answered(Err(broken()));
        }
        if let Some(mut core) = line.take_core() {
            let is_alone = line.waiting.is_empty();
            match (work, line.waiting_bytes()) {
                (Work::Alone, _) if is_alone => return Turn::Lead { core, members: Vec::new(), own: 0 },
                // C2: all who wait come first.
                (Work::Member { request, weight }, Some(before))
                    if (is_alone || before.saturating_add(weight) <= group_bytes_max)
                        && !line.is_early(is_patient, 1) =>
                {
                    line.is_patient = false;
                    let members = line.gather(&mut core.group, 0, group_bytes_max);
                    let own = core.group.len();
                    core.group.push(request);
                    return Turn::Lead { core, members, own };
                }
                (stays, _) => (work, line.core) = (stays, Some(core)),
            }
        }
        let (seat, returned) = (Seat::of_this_thread(), Returned::default());
        line.waiting.push_back(Waiter { work, seat: seat.clone(), returned: returned.clone() });
        if line.is_patient && !line.is_early(false, 0) {
            // Those whom the first one waits for are there, and this one may not lead for all of them.
            tell_first(line);
        } else {
            drop(line);
        }
        let mut patience = None;
        loop {
            let mut line = self.line.lock();
            let core = if line.is_first(&seat) { line.take_core() } else { None };
            match core {
                Some(core) if line.is_early(is_patient, 0) && patience.as_ref().is_none_or(Patience::lasts) => {
                    (line.core, line.is_patient) = (Some(core), true);
                    patience.get_or_insert_with(Patience::begin);
                }
                Some(mut core) => {
                    line.is_patient = false;
                    let mut members = Vec::new();
                    if let Some(Waiter { work: Work::Member { request, weight }, .. }) = line.waiting.pop_front() {
                        core.group.push(request);
                        members = line.gather(&mut core.group, weight, group_bytes_max);
                    }
                    return Turn::Lead { core, members, own: 0 };
                }
                // Whoever leads does so for this one, too, or tells it to.
                None => patience = None,
            }
            drop(line);
            let told = match &mut patience {
                Some(patience) => seat.wait_for(patience),
                None => Some(seat.wait(!is_patient)),
            };
            if let Some(Told::Answer(answer)) = told {
                return Turn::Answered(answer.map(|()| returned.lock().take()));
            }
        }
    }

    /// Puts the core back, after a group of so many, and tells the first in line to take it.
    fn leave(&self, core: Box<Core<R, L>>, group_len: usize) {
        let mut line = self.line.lock();
        line.crowd = group_len + line.waiting.len();
        hand_over(line, core);
    }

    /// The same after a panic: everyone but those who want to be alone is refused (C4).
    fn leave_broken(
        &self,
        mut core: Box<Core<R, L>>,
        members: Vec<Member<R>>,
        panic: Box<dyn std::any::Any + Send>,
    ) -> ! {
        let unwritten = std::mem::take(&mut core.group);
        let mut line = self.line.lock();
        let refused = line.break_up();
        hand_over(line, core);
        tell_broken(&members, &refused);
        drop((unwritten, refused));
        resume_unwind(panic)
    }

    /// The same by who does not lead any more. If those who wait were told to lead, they do not: who leads now tells the next.
    fn refuse_all(&self, members: Vec<Member<R>>, panic: Box<dyn std::any::Any + Send>) -> ! {
        let mut line = self.line.lock();
        let refused = line.break_up();
        tell_first(line);
        tell_broken(&members, &refused);
        drop(refused);
        resume_unwind(panic)
    }
}

/// The next leader is told before the members of the last group: their thanks can wait, the disk should not.
fn hand_over<R, L>(mut line: MutexGuard<'_, Line<R, L>>, core: Box<Core<R, L>>) {
    line.core = Some(core);
    tell_first(line);
}

/// Tells the first in line to lead, if it may. Who was told already finds the core gone, and waits on.
fn tell_first<R, L>(line: MutexGuard<'_, Line<R, L>>) {
    let may_lead = line.core.is_some() && !line.is_flying;
    let next = line.waiting.front().filter(|_| may_lead).map(|first| first.seat.clone());
    drop(line);
    if let Some(next) = next {
        next.tell(Told::Lead);
    }
}

/// A group on its way to the device (C6), until it is dropped.
pub struct Flight<'a, R, L> {
    of: &'a CommitQueue<R, L>,
}

impl<R, L> Drop for Flight<'_, R, L> {
    fn drop(&mut self) {
        let mut line = self.of.line.lock();
        line.is_flying = false;
        tell_first(line);
    }
}

impl<R, L> fmt::Debug for Flight<'_, R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}

fn tell_broken<R>(members: &[Member<R>], refused: &VecDeque<Waiter<R>>) {
    for seat in members.iter().map(|member| &member.seat).chain(refused.iter().map(|waiter| &waiter.seat)) {
        seat.tell(Told::Answer(Err(broken())));
    }
}

fn broken() -> Error {
    Error::new(
        ErrorKind::ReadOnly,
        "a thread panicked while it wrote for all, so what was written is unknown; reopen to go on",
    )
}

impl<R> fmt::Debug for Terms<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms").field("group_bytes_max", &self.group_bytes_max).finish_non_exhaustive()
    }
}

impl<R, L> fmt::Debug for CommitQueue<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitQueue").finish_non_exhaustive()
    }
}
